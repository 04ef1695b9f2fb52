"""Asking the ranks of a job that runs on this host for their records.

By SIGUSR2, and only those that are known to answer it (see
`allhands.elastic.record_memory`): nobody else is sent a signal. Once its world has met
a rank says there which one that is; before, what it was started with, by its
environment, says which job it is of.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from allhands.debug.dumps import NO_ANSWER, NOT_HERE, Dump
from allhands.debug.job_record import JobRecord
from allhands.elastic.record_memory import answers, mark_of, record_in
from allhands.elastic.records import HALTED, is_halted

__all__ = ["ask", "ranks_of"]

_PAUSE = 0.01  # seconds between looks for answers
_JOB = "ALLHANDS_JOB"
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID")
_RUN_ID = "TORCHELASTIC_RUN_ID"


def ranks_of(job: str) -> list[int]:
    """The processes that are the ranks of `job` here and can be asked.

    Args:
        job: the run id that their launcher was given (`--rdzv-id`); where no job here
            has it, the process id of one of them, or of what has started them.

    Raises:
        ValueError: there are none.
    """
    found = [pid for pid in _processes() if _told(pid, (_RUN_ID,)) == (job,)]
    if not found:
        unknown = (
            f"{job!r} is no file, and no run id of a job on this host that you may "
            f"look at"
        )
        if not (job.isascii() and job.isdecimal()):
            raise ValueError(
                f"{unknown}; want records, a process id, or what --rdzv-id was"
            )
        found = _ranks_around(int(job), unknown)
    asked = [pid for pid in sorted(found) if answers(pid)]
    if not asked:
        raise ValueError(
            f"no process of {job} answers: ranks do from init_process_group on, unless "
            f"they had a handler of SIGUSR2 by then"
        )
    return asked


def _ranks_around(pid: int, unknown: str) -> list[int]:
    """Of the job of that process; `unknown` is what else its number is not."""
    if not os.path.exists(f"/proc/{pid}"):
        raise ValueError(f"{unknown}, and there is no process {pid}")
    if not os.access(f"/proc/{pid}/fd", os.R_OK):
        raise ValueError(
            f"{unknown}, and process {pid} is another user's: ask as that user"
        )
    if not answers(pid):
        return _descendants(pid)
    for sign in (_world_of, _job_of, _meeting_of):
        told = sign(pid)
        if any(told):
            return [other for other in _processes() if sign(other) == told]
    return [pid]


def _world_of(pid: int) -> tuple[str, ...]:
    mark = mark_of(pid)
    return () if mark is None else (mark.world,)


def _job_of(pid: int) -> tuple[str, ...]:
    return _told(pid, (_JOB,))


def _meeting_of(pid: int) -> tuple[str, ...]:
    return _told(pid, _MEETING)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _descendants(pid: int) -> list[int]:
    parents = {other: _parent(other) for other in _processes()}
    found, new = {pid}, {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return list(found)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def _told(pid: int, names: Sequence[str]) -> tuple[str, ...]:
    """What the environment that the process was started with says of these names."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().decode(errors="replace").split("\0")
    except OSError:
        return ("",) * len(names)
    there = dict(pair.partition("=")[::2] for pair in pairs)
    return tuple(there.get(name, "") for name in names)


def ask(pids: Iterable[int], limit: float) -> JobRecord:
    """Have these processes write their records, and read them; within `limit` seconds.

    Raises:
        ValueError: none of them answers.
    """
    before = {pid: record_in(pid) for pid in pids}
    for pid in before:
        _send(pid)
    found: dict[int, Dump] = {}
    end = time.monotonic() + limit
    while len(found) < len(before) and time.monotonic() < end:
        for pid in before.keys() - found.keys():
            text = record_in(pid)
            if text != before[pid] and (dump := _read(text)) is not None:
                found[pid] = dump
        time.sleep(_PAUSE)
    silent = before.keys() - found.keys()
    if not found:
        raise ValueError(
            f"none of the processes {sorted(silent)} answers within {limit:g} s: "
            f"{_why(min(silent))}"
        )
    dumps = tuple(sorted(found.values(), key=lambda dump: dump.rank))
    return JobRecord(dumps, _endings(dumps, silent))


def _send(pid: int) -> None:
    """Ask the process, and no other that has got its number meanwhile."""
    with suppress(OSError):  # it has ended
        process = os.pidfd_open(pid)
        try:
            if answers(pid):
                signal.pidfd_send_signal(process, signal.SIGUSR2)
        finally:
            os.close(process)


def _read(text: str) -> Dump | None:
    """None: it is not there as a whole yet."""
    with suppress(ValueError, RecursionError):
        return Dump.of(json.loads(text))
    return None


def _endings(dumps: Sequence[Dump], silent: Iterable[int]) -> dict[int, str]:
    size = max(dump.world_size for dump in dumps)
    answered = {dump.rank for dump in dumps}
    endings = {rank: NOT_HERE for rank in range(size) if rank not in answered}
    for pid in silent:
        rank = _rank_of(pid)
        if rank is not None and rank not in answered:
            endings[rank] = _why(pid)
    return endings


def _rank_of(pid: int) -> int | None:
    """As the process says, or as it was started; None: nothing tells."""
    mark = mark_of(pid)
    if mark is not None:
        return mark.rank
    [rank] = _told(pid, ("RANK",))
    is_rank = rank.isascii() and rank.isdecimal() and len(rank) < 10
    return int(rank) if is_rank else None


def _why(pid: int) -> str:
    """Why that process gives no record."""
    return HALTED if is_halted(pid) else NO_ANSWER
