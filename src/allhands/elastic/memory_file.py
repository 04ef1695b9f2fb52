"""Anonymous files of other processes, found among their descriptors by a name.

A file that a process shows others is called `NAME.PID`, and more behind another dot: a
child that its parent forked has its parent's, too, which are not meant.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["memory_file", "status_of"]


def memory_file(pid: int, name: str) -> tuple[str, str]:
    """By which path others open it, and what stands behind the number in its name.

    Empty: the process has none, or may not be looked at.
    """
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        own = status_of(pid, "NSpid").split()[-1:]  # as the process itself has it
        full = ".".join([f"/memfd:{name}", *own])
        for number in os.listdir(folder):
            path = f"{folder}/{number}"
            with suppress(OSError):  # closed meanwhile
                link = os.readlink(path).removesuffix(" (deleted)")
                if own and (link == full or link.startswith(f"{full}.")):
                    return path, link[len(full) + 1 :]
    return "", ""


def status_of(pid: int, name: str) -> str:
    """What the kernel tells of the process by that name, or nothing.

    Raises:
        OSError: there is no such process, or it may not be looked at.
    """
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return line.partition(":")[2].strip()
    return ""
