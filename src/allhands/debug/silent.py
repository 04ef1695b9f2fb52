"""What can be seen from outside of ranks that do not answer: the last call, the line.

The last call of a rank is in its flight memory. The line comes from py-spy, if this is
installed and may read the memory of the process. Neither stops or disturbs the process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from allhands.backends.frames import Place, places_among
from allhands.debug.top.memory import open_memory

__all__ = ["seen_of", "with_seen"]


def with_seen(
    reasons: Mapping[int, str], pids: Mapping[int, int], limit: float
) -> dict[int, str]:
    """Return `reasons` with what is seen of the ranks in `pids`.

    Args:
        reasons: why ranks do not answer, by rank.
        pids: the processes of the ranks to look at.
        limit: seconds for all of them; of the rest only the last call is told.
    """
    end = time.monotonic() + limit
    return {
        rank: f"{why}{seen_of(pids[rank], end)}" if rank in pids else why
        for rank, why in reasons.items()
    }


def seen_of(pid: int, deadline: float) -> str:
    """Return the last call and the line: ", after barrier #2 on group '0' (a.py:7)".

    Args:
        pid: the process of a rank.
        deadline: a time of `time.monotonic()` until which py-spy is waited for.
    """
    found = _place_of(pid, deadline - time.monotonic())
    return _last_call_of(pid) + (f" ({found})" if found else "")


def _last_call_of(pid: int) -> str:
    file = open_memory(pid)
    if file is None:
        return ""
    try:
        calls = [
            (each.started, each, group)
            for group in file.groups()
            for each in group.operations
            if each.op
        ]
    finally:
        file.close()
    if not calls:
        return ""
    _, last, group = max(calls, key=lambda call: call[0])
    where = "in" if last.is_under_way else "after"
    number = "" if last.is_message else f" #{last.number}"
    return f", {where} {last.op}{number} on group '{group.name}'"


def _place_of(pid: int, limit: float) -> Place | None:
    """Return the line of the program at which the main thread is, if py-spy knows."""
    program = _py_spy()
    if not program or limit <= 0:
        return None
    with suppress(OSError, ValueError, TypeError, KeyError, subprocess.SubprocessError):
        told = subprocess.run(
            [program, "dump", "--nonblocking", "--json", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=limit,
        )
        for thread in json.loads(told.stdout):
            if thread["os_thread_id"] == pid:
                return next(iter(places_among(list(_places(thread["frames"])))), None)
    return None


def _py_spy() -> str:
    """Return the path of py-spy: beside this Python, or on the PATH; "" if none."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return shutil.which(beside) or shutil.which("py-spy") or ""


def _places(frames: Iterable[Mapping[str, object]]) -> Iterable[Place]:
    for frame in frames:
        line = frame["line"]
        if not isinstance(line, int):
            raise TypeError(f"{line!r} is no line")
        yield Place(str(frame["name"]), str(frame["filename"]), line)
