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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from allhands.backends.frames import SourceLine, source_lines_among
from allhands.debug.allowance import Allowance
from allhands.debug.top.memory import open_memory

__all__ = ["seen_of", "with_seen"]


def with_seen(
    reasons: Mapping[int, str], pids: Mapping[int, int], limit: float
) -> dict[int, str]:
    """Return `reasons` with what is seen of the ranks in `pids`.

    Args:
        reasons: why ranks do not answer, by rank.
        pids: the processes of the ranks to look at.
        limit: seconds for all of them, see `Allowance`; of the rest only the last call
            is told.
    """
    allowance = Allowance(limit)
    return {
        rank: f"{why}{seen_of(pids[rank], allowance)}" if rank in pids else why
        for rank, why in reasons.items()
    }


def seen_of(pid: int, allowance: Allowance) -> str:
    """Return the last call and the line: ", after barrier #2 on group '0' (a.py:7)".

    Args:
        pid: the process of a rank.
        allowance: how long py-spy is waited for. It takes 10 ms of a CPU.
    """
    found = _place_of(pid, allowance)
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


def _place_of(pid: int, allowance: Allowance) -> SourceLine | None:
    """Return the line of the program at which the main thread is, if py-spy knows."""
    program = _py_spy()
    if not program or allowance.left() <= 0:
        return None
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    with suppress(OSError, ValueError, TypeError, KeyError):
        for thread in json.loads(_output_of(command, allowance)):
            if thread["os_thread_id"] == pid:
                return next(
                    iter(source_lines_among(list(_places(thread["frames"])))), None
                )
    return None


def _output_of(command: Sequence[str], allowance: Allowance) -> bytes:
    """Return what the command writes; nothing if it fails or takes too long."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        with allowance.spent_by(process.pid):
            while (left := allowance.left()) > 0:
                with suppress(subprocess.TimeoutExpired):
                    output, _ = process.communicate(timeout=left)
                    return b"" if process.returncode else output
        process.kill()
    return b""


def _py_spy() -> str:
    """Return the path of py-spy: beside this Python, or on the PATH; "" if none."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return shutil.which(beside) or shutil.which("py-spy") or ""


def _places(frames: Iterable[Mapping[str, object]]) -> Iterable[SourceLine]:
    for frame in frames:
        line = frame["line"]
        if not isinstance(line, int):
            raise TypeError(f"{line!r} is no line")
        yield SourceLine(str(frame["name"]), str(frame["filename"]), line)
