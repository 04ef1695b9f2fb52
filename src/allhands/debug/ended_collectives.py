"""EndedCollective: when each rank came to a collective of a group, from all records.

A rank that has come waits until the last one has come, or until it may leave without
that rank, as the root of a broadcast may. Times are those of each host's clock. The
clocks of several hosts are corrected by operations that no rank leaves before all have
come: their ends, if measured, count as one moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from allhands.debug.clocks import Visit, clocks
from allhands.debug.dumps import Dump
from allhands.debug.whom import end_together

__all__ = [
    "Arrival",
    "EndedCollective",
    "arrivals_of",
    "clocks_of",
    "ended_collectives",
]


class Arrival(NamedTuple):
    """An ended collective on one rank; times are nanoseconds since 1970."""

    number: int
    op: str
    num_bytes: int
    came: int
    ended: int
    """0: not measured."""
    left_by: int
    """The latest time at which it had ended; 0 if unknown."""


@dataclass(frozen=True)
class EndedCollective:
    """A collective that has ended on all ranks. Immutable; ranks are the given ones."""

    op: str
    num_bytes: int
    last: int
    """The rank that came last."""
    lateness: float
    """Seconds by which it came after the rank before it."""
    waits: Mapping[int, float]
    """Seconds for which each rank waited for the last one."""
    durations: tuple[float, ...]
    """Seconds from the coming of each rank to its end there, if measured."""
    transfer: float | None
    """Seconds from the last coming to the mean of the ends; None if not measured."""
    first_came: int
    last_came: int
    """Nanoseconds since 1970."""


def arrivals_of(dump: Dump) -> dict[str, list[Arrival]]:
    """Return the collectives of the record, by the name of the group."""
    found, later = dict[str, list[Arrival]](), dict[int, int]()
    for entry in reversed(dump.entries):
        if entry.started is None:
            continue
        if entry.state == "completed" and not entry.is_message:
            ended = entry.ended or 0
            left_by = ended or later.get(entry.thread, 0)
            times = entry.started, ended, left_by
            arrival = Arrival(entry.number, entry.op, entry.num_bytes, *times)
            found.setdefault(entry.group, []).append(arrival)
        if not entry.is_async:
            later[entry.thread] = entry.started
    return found


def ended_collectives(
    arrivals: Mapping[int, Sequence[Arrival]],
    hosts: Mapping[int, str],
    most: int | None = None,
) -> list[EndedCollective]:
    """Return the collectives that all ranks have on record, by number.

    Args:
        arrivals: those of each rank of a group.
        hosts: the host of each rank.
        most: the number of collectives, the last ones; None means all.
    """
    by_number = {
        rank: {arrival.number: arrival for arrival in found}
        for rank, found in arrivals.items()
    }
    if len(by_number) < 2:
        return []
    common = sorted(set.intersection(*(set(found) for found in by_number.values())))
    common = common[-most:] if most is not None else common
    rows = [{rank: by_number[rank][number] for rank in by_number} for number in common]
    names = [hosts[rank] for rank in sorted(hosts)]
    by_host = _clocks(names, [(row, hosts) for row in rows])
    ahead = {rank: by_host[host] for rank, host in hosts.items()}
    return [_ended_collective(row, ahead) for row in rows]


def _ended_collective(
    row: Mapping[int, Arrival], ahead: Mapping[int, int]
) -> EndedCollective:
    came = {rank: arrival.came - ahead[rank] for rank, arrival in row.items()}
    *_, before, last = sorted(came, key=lambda rank: came[rank])
    waits, durations, transfers = {}, [], []
    for rank, arrival in row.items():
        left_by = arrival.left_by - ahead[rank] if arrival.left_by else came[last]
        waits[rank] = max(0, min(left_by, came[last]) - came[rank]) / 1e9
        if arrival.ended:
            durations.append((arrival.ended - arrival.came) / 1e9)
            since = arrival.ended - ahead[rank] - came[last]
            transfers.append(max(0, since) / 1e9)
    return EndedCollective(
        row[last].op,
        row[last].num_bytes,
        last,
        (came[last] - came[before]) / 1e9,
        waits,
        tuple(durations),
        fmean(transfers) if transfers else None,
        min(came.values()),
        came[last],
    )


def clocks_of(dumps: Sequence[Dump]) -> dict[str, int]:
    """Return how far each host's clock is ahead of the first host's, in nanoseconds."""
    rows: dict[tuple[str, str, tuple[int, ...], int], dict[int, Arrival]] = {}
    # for each world: a rank may be elsewhere in the next
    hosts: dict[str, dict[int, str]] = {}
    for dump in dumps:
        hosts.setdefault(dump.world, {})[dump.rank] = dump.host
        for name, found in arrivals_of(dump).items():
            for arrival in found:
                key = dump.world, name, dump.group_of(name).ranks, arrival.number
                rows.setdefault(key, {})[dump.rank] = arrival
    names = [dump.host for dump in sorted(dumps, key=lambda dump: dump.rank)]
    return _clocks(names, [(row, hosts[world]) for (world, *_), row in rows.items()])


def _clocks(
    names: Sequence[str],
    rows: Sequence[tuple[Mapping[int, Arrival], Mapping[int, str]]],
) -> dict[str, int]:
    """Return the clocks of these hosts, from collectives and their ranks' hosts."""
    is_needed = len(set(names)) > 1
    visits = [_visits(row, hosts) for row, hosts in rows] if is_needed else []
    return clocks(names, visits)


def _visits(row: Mapping[int, Arrival], hosts: Mapping[int, str]) -> dict[str, Visit]:
    """Return the hosts in a collective; none if a rank may leave before others come."""
    by_host: dict[str, list[Arrival]] = {}
    for rank, arrival in row.items():
        if end_together(arrival.op):
            by_host.setdefault(hosts[rank], []).append(arrival)
    return {
        host: Visit(
            max(arrival.came for arrival in there),
            min((arrival.left_by for arrival in there if arrival.left_by), default=0),
            min(arrival.ended for arrival in there),
        )
        for host, there in by_host.items()
    }
