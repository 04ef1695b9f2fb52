"""Processes of this host: who started whom, and with which environment."""

from __future__ import annotations

import os
from collections.abc import Sequence

from allhands.elastic.process_state import process_state

__all__ = ["RUN_ID", "descendants", "environment_of", "processes", "why_unseen"]

RUN_ID = "TORCHELASTIC_RUN_ID"
"""What has the run id of a job in the environment of its ranks."""


def processes() -> list[int]:
    """All that there are."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def why_unseen(pid: int) -> str:
    """Why nothing can be learned of the process; empty: it may be read."""
    if not os.path.exists(f"/proc/{pid}"):
        return f"there is no process {pid}"
    if not os.access(f"/proc/{pid}/fd", os.R_OK):
        return f"process {pid} is another user's: ask as that user"
    return ""


def descendants(pid: int) -> list[int]:
    """The process, what it has started, what these have, and so on."""
    children = dict[int, list[int]]()
    for other in processes():
        told = process_state(other)
        if told is not None:
            children.setdefault(told.parent, []).append(other)
    found = [pid]
    for each in found:  # which grows meanwhile
        found += children.get(each, ())
    return found


def environment_of(pid: int, names: Sequence[str]) -> tuple[str, ...]:
    """What the environment that the process was started with says of these names."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().decode(errors="replace").split("\0")
    except OSError:
        return ("",) * len(names)
    there = dict(pair.partition("=")[::2] for pair in pairs)
    return tuple(there.get(name, "") for name in names)
