"""The jobs on this host whose ranks can be watched, and the selection of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allhands.backends.printable import printable
from allhands.debug.processes import (
    RUN_ID,
    descendants,
    environment_of,
    processes,
    why_unseen,
)
from allhands.debug.top.memory import FlightFile, Header, open_memory

__all__ = ["WatchedRank", "job_of", "jobs"]

_LONGEST = 44  # characters of a command line


@dataclass(frozen=True)
class WatchedRank:
    """A rank of this host. Immutable; the owner of the object also owns its file."""

    pid: int
    header: Header
    file: FlightFile


def jobs(pids: Sequence[int] | None = None) -> dict[str, list[WatchedRank]]:
    """Return the ranks of each world, by its name, among all processes or `pids`.

    If several processes claim to be the same rank, only the first one counts.
    """
    found = dict[str, dict[int, WatchedRank]]()
    for pid in processes() if pids is None else pids:
        file = open_memory(pid)
        if file is None:
            continue
        header = file.header()
        if header is None or header.rank in found.get(header.world, ()):
            file.close()
        else:
            ranks = found.setdefault(header.world, {})
            ranks[header.rank] = WatchedRank(pid, header, file)
    return {
        world: [each for _, each in sorted(ranks.items())]
        for world, ranks in found.items()
    }


def job_of(job: str | None) -> list[WatchedRank]:
    """Return the ranks of a job on this host.

    Args:
        job: its run id, or a process id of a rank or of a process that started the
            ranks. None means the only job.

    Raises:
        ValueError: there is no such job, or there are several, or `job` is empty.
    """
    if job == "":  # all ranks without a run id have this
        raise ValueError(
            "a job's name is empty; want a process id, or what --rdzv-id was"
        )
    found = jobs()
    try:
        wanted = found if job is None else _named(job, found)
    except ValueError:
        _close(found, [])
        raise
    if len(wanted) == 1:
        [ranks] = wanted.values()
        _close(found, ranks)
        return ranks
    lines = [_line(ranks) for ranks in (wanted or found).values()]
    _close(found, [])
    is_number = job is not None and _is_number(job)
    whose = "of yours" if job is None else f"named {job!r}"
    whose = f"of process {job}" if is_number else whose
    if wanted:
        raise ValueError(
            f"{len(lines)} jobs {whose} run here; say which:\n" + "\n".join(lines)
        )
    there = "; there are:\n" + "\n".join(lines) if lines else ""
    raise ValueError(
        f"no job {whose} runs here whose ranks have met by init_process_group, with "
        f"backend native{there}"
    )


def _named(
    job: str, found: Mapping[str, list[WatchedRank]]
) -> Mapping[str, list[WatchedRank]]:
    named = {
        world: ranks
        for world, ranks in found.items()
        if any(environment_of(each.pid, (RUN_ID,)) == (job,) for each in ranks)
    }
    if named or not _is_number(job):
        return named
    pid = int(job)
    if why := why_unseen(pid):
        raise ValueError(f"{job!r} is no run id of a job that runs here, and {why}")
    below = set(descendants(pid))
    return {
        world: ranks
        for world, ranks in found.items()
        if any(each.pid in below for each in ranks)
    }


def _is_number(job: str) -> bool:
    return job.isascii() and job.isdecimal()


def _close(found: Mapping[str, list[WatchedRank]], but: list[WatchedRank]) -> None:
    kept = {each.pid for each in but}
    for ranks in found.values():
        for each in ranks:
            if each.pid not in kept:
                each.file.close()


def _line(ranks: Sequence[WatchedRank]) -> str:
    first = ranks[0]
    [run_id] = environment_of(first.pid, (RUN_ID,))
    named = f", run id {run_id}" if run_id else ""
    return (
        f"  {first.pid}  {len(ranks)} of {first.header.size} ranks"
        f"{named}: {_command_line(first.pid)}"
    )


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
    except OSError:
        return "?"
    text = printable(" ".join(words).strip(), kept="")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
