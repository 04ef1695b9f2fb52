"""Which Gloo there is here: torch's, without importing torch."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["why_no_gloo"]


def why_no_gloo() -> str:
    """Why there is no Gloo here, and what to do; empty where torch is installed."""
    if find_spec("torch"):
        return ""
    return (
        'torch, which has Gloo, is not installed; pip install torch. backend="native" '
        "serves CPU arrays without it, also in programs that say gloo, with "
        "ALLHANDS_REPLACE_GLOO=1 or allhands run --replace-gloo"
    )
