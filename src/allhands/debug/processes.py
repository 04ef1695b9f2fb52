"""The processes of this host: their parents and their environments."""

from __future__ import annotations

import os
from collections.abc import Sequence

from allhands.elastic.process_state import process_state

__all__ = ["RUN_ID", "descendants", "environment_of", "processes", "why_unseen"]

RUN_ID = "TORCHELASTIC_RUN_ID"
"""The environment variable with the run id of a job."""


def processes() -> list[int]:
    """Return all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def why_unseen(pid: int) -> str:
    """Return why the process cannot be inspected; empty if it can."""
    if not os.path.exists(f"/proc/{pid}"):
        return f"there is no process {pid}"
    if not os.access(f"/proc/{pid}/fd", os.R_OK):
        return f"process {pid} is another user's: ask as that user"
    return ""


def descendants(pid: int) -> list[int]:
    """Return the process and all of its descendants."""
    children = dict[int, list[int]]()
    for other in processes():
        told = process_state(other)
        if told is not None:
            children.setdefault(told.parent, []).append(other)
    found = [pid]
    for each in found:  # the list grows meanwhile
        found += children.get(each, ())
    return found


def environment_of(pid: int, names: Sequence[str]) -> tuple[str, ...]:
    """Return these variables in the environment with which the process was started."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().decode(errors="replace").split("\0")
    except OSError:
        return ("",) * len(names)
    there = dict(pair.partition("=")[::2] for pair in pairs)
    return tuple(there.get(name, "") for name in names)
