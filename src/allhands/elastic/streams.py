"""The standard streams of a command: all are there, and stdout takes any text.

A shell's `>&-`, a daemon or a batch system may start a process whose descriptors 0, 1
or 2 are closed. Python then sets `sys.stdout` and its kin to None. The native core has
opened /dev/null in the place of these descriptors when it was loaded.

The encoding of stdout may lack letters that programs put into names. Python's stderr
writes these with backslashes. A strict stdout raises, so it is made to write them, too.
"""

from __future__ import annotations

import io
import os
import sys

__all__ = ["prepare_streams"]


def prepare_streams() -> None:
    """Let each stream that is None be /dev/null, and a strict stdout write any text."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
