"""Asks the ranks of a running job on this host for their records.

It asks by SIGUSR2, and only processes that are known to answer this signal (see
`allhands.elastic.record_memory`); no other process gets a signal. After its world has
met, a rank publishes its world there. Before, the environment with which it was started
says to which job it belongs.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from allhands.debug.dumps import ELSEWHERE, ENDED, NOT_HERE, Dump
from allhands.debug.job_record import JobRecord
from allhands.debug.processes import (
    RUN_ID,
    descendants,
    environment_of,
    processes,
    why_unseen,
)
from allhands.debug.silent import with_seen
from allhands.elastic.record_memory import answers, mark_of, record_in
from allhands.elastic.records import HALTED, NO_ANSWER, is_halted, limit_of
from allhands.rendezvous.identity import Identity, is_alive, process_identity

__all__ = ["ask", "ask_ranks", "ranks_of"]

_PAUSE = 0.01  # seconds between looks for answers
_JOB = "ALLHANDS_JOB"
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", RUN_ID)


def ranks_of(job: str) -> list[int]:
    """Return the processes on this host that are ranks of `job` and can be asked.

    Args:
        job: the run id of their launcher (`--rdzv-id`); if no job here has this id, the
            process id of a rank or of its launcher.

    Raises:
        ValueError: there are no such processes, or `job` is empty.
    """
    if not job:  # all processes outside a job have this
        raise ValueError(
            "a job's name is empty; want a process id, or what --rdzv-id was"
        )
    found = [pid for pid in processes() if environment_of(pid, (RUN_ID,)) == (job,)]
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
    """Return the ranks of the job of process `pid`; `unknown` begins an error."""
    if why := why_unseen(pid):
        raise ValueError(f"{unknown}, and {why}")
    if not answers(pid):
        return descendants(pid)
    for sign in (_world_of, _job_of, _meeting_of):
        told = sign(pid)
        if any(told):
            return [other for other in processes() if sign(other) == told]
    return [pid]


def _world_of(pid: int) -> tuple[str, ...]:
    mark = mark_of(pid)
    return () if mark is None else (mark.world,)


def _job_of(pid: int) -> tuple[str, ...]:
    return environment_of(pid, (_JOB,))


def _meeting_of(pid: int) -> tuple[str, ...]:
    return environment_of(pid, _MEETING)


def ask(pids: Iterable[int], limit: float) -> JobRecord:
    """Let these processes write their records, and read them.

    Args:
        pids: the processes.
        limit: seconds that they have to answer; more if many share a CPU.

    Raises:
        ValueError: none of them answers.
    """
    asked = set(pids)
    limit = limit_of(len(asked), limit)
    found = _answers(asked, limit)
    silent = asked - found.keys()
    if not found:
        raise ValueError(
            f"none of the processes {sorted(silent)} answers within {limit:g} s: "
            f"{_why(min(silent))}"
        )
    dumps = tuple(sorted(found.values(), key=lambda dump: dump.rank))
    return JobRecord(dumps, _endings(dumps, silent, limit))


def ask_ranks(ranks: Mapping[int, Identity], limit: float) -> JobRecord:
    """Return the records of ranks of this world, and why other ranks have none.

    Args:
        ranks: the ranks and their processes.
        limit: seconds that all of them together have.
    """
    end = time.monotonic() + limit
    endings = {rank: _why_not(each) for rank, each in ranks.items()}
    asked = {rank: ranks[rank].pid for rank, why in endings.items() if not why}
    found = _answers(asked.values(), limit)
    dumps = [
        found[pid]
        for rank, pid in sorted(asked.items())
        if pid in found and found[pid].rank == rank
    ]
    told = {dump.rank for dump in dumps}
    silent = asked.keys() - told
    endings.update({rank: _why_not(ranks[rank]) or NO_ANSWER for rank in silent})
    reasons = {rank: why for rank, why in endings.items() if why}
    seen = {
        rank: ranks[rank].pid
        for rank, why in reasons.items()
        if why in (HALTED, NO_ANSWER)
    }
    left = max(end - time.monotonic(), limit / 2)
    return JobRecord(dumps, with_seen(reasons, seen, left))


def _why_not(process: Identity) -> str:
    """Return why the process cannot be asked; empty if it can."""
    me = process_identity()
    if process.host != me.host:
        return ELSEWHERE
    if not is_alive(process):
        return ENDED
    if is_halted(process.pid):
        return HALTED
    return "" if process.pid != me.pid and answers(process.pid) else NOT_HERE


def _answers(pids: Collection[int], limit: float) -> dict[int, Dump]:
    """Return the records that come within `limit` seconds, by process."""
    before = {pid: record_in(pid) for pid in pids}
    for pid in before:
        _send(pid)
    told: dict[int, Any] = {}
    end = time.monotonic() + limit
    is_last = False  # a timely answer counts, however long it takes to read
    while len(told) < len(before) and not is_last:
        is_last = time.monotonic() >= end
        for pid in before.keys() - told.keys():
            text = record_in(pid)
            if text != before[pid]:
                with suppress(ValueError, RecursionError):  # it is still incomplete
                    told[pid] = json.loads(text)
        if not is_last:
            time.sleep(_PAUSE)
    read = ((pid, _read(each)) for pid, each in told.items())
    return {pid: dump for pid, dump in read if dump is not None}


def _send(pid: int) -> None:
    """Ask the process, and no other that has its number by now."""
    with suppress(OSError):  # it has ended
        process = os.pidfd_open(pid)
        try:
            if answers(pid):
                signal.pidfd_send_signal(process, signal.SIGUSR2)
        finally:
            os.close(process)


def _read(told: Any) -> Dump | None:
    """Return the record, or None if `told` is not one."""
    with suppress(ValueError, RecursionError):
        return Dump.of(told)
    return None


def _endings(
    dumps: Sequence[Dump], silent: Iterable[int], limit: float
) -> dict[int, str]:
    size = max(dump.world_size for dump in dumps)
    answered = {dump.rank for dump in dumps}
    endings = {rank: NOT_HERE for rank in range(size) if rank not in answered}
    pids = dict[int, int]()
    for pid in silent:
        rank = _rank_of(pid)
        if rank is not None and rank not in answered:
            endings[rank] = _why(pid)
            pids[rank] = pid
    return with_seen(endings, pids, limit)


def _rank_of(pid: int) -> int | None:
    """Return the rank that the process names, or was started with; or None."""
    mark = mark_of(pid)
    if mark is not None:
        return mark.rank
    [rank] = environment_of(pid, ("RANK",))
    is_rank = rank.isascii() and rank.isdecimal() and len(rank) < 10
    return int(rank) if is_rank else None


def _why(pid: int) -> str:
    """Return why the process gives no record."""
    return HALTED if is_halted(pid) else NO_ANSWER
