"""Finds out whether torch's Gloo is available, without importing torch."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["why_no_gloo"]


def why_no_gloo() -> str:
    """Return why Gloo is not available, and what to do; empty if torch is installed.

    If torch is imported, it says whether it was built with Gloo.
    """
    theirs = sys.modules.get("torch.distributed")
    if theirs is not None:
        asked = getattr(theirs, "is_gloo_available", lambda: False)
        problem = "" if asked() else "the torch that is installed was built without it"
    else:
        spec = find_spec("torch")
        # otherwise it is just a folder
        is_there = spec is not None and spec.origin is not None
        problem = "" if is_there else "torch, which has Gloo, is not installed"
    return problem and (
        f'{problem}; pip install torch. backend="native" '
        f"serves CPU arrays without it, also in programs that say gloo, with "
        f"ALLHANDS_REPLACE_GLOO=1 or allhands run --replace-gloo"
    )
