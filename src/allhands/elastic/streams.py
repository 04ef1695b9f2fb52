"""The standard streams of a command that was started without some of them.

A shell's `>&-`, a daemon or a batch system may start a process whose descriptors 0, 1
or 2 are closed. Python then sets `sys.stdout` and its kin to None. The native core has
opened /dev/null in the place of these descriptors when it was loaded.
"""

from __future__ import annotations

import os
import sys

__all__ = ["replace_missing_streams"]


def replace_missing_streams() -> None:
    """Let `sys.stdin`, `sys.stdout` and `sys.stderr` that are None be /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
