"""Meetings: who came when to each collective of a group, as all ranks' records tell.

A rank that has come waits until the last one has, or until it may leave without that
one, as the root of a broadcast may. Times are by the clock of each host. Those of
several hosts are set right by the operations that nobody leaves before all have come:
their ends, where they are timed, are taken for one moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median
from typing import NamedTuple

from allhands.debug.dumps import Dump

__all__ = ["Arrival", "Meeting", "arrivals_of", "meetings"]

_ENDS_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


class Arrival(NamedTuple):
    """A collective that has ended, on one rank; times are nanoseconds since 1970."""

    number: int
    op: str
    num_bytes: int
    came: int
    ended: int
    """0: not timed."""
    left_by: int
    """When it had ended at the latest; 0: that is not known."""


@dataclass(frozen=True)
class Meeting:
    """A collective that has ended on all ranks. Immutable; ranks are those given."""

    op: str
    num_bytes: int
    last: int
    """The rank that came last."""
    lateness: float
    """Seconds from when the last but one came."""
    waits: Mapping[int, float]
    """Seconds that each rank waited for the last."""
    durations: tuple[float, ...]
    """Seconds from when a rank came to its end there, where that is timed."""
    transfer: float | None
    """Seconds from when the last came to the mean of the ends; None: not timed."""
    first_came: int
    last_came: int
    """Nanoseconds since 1970."""


def arrivals_of(dump: Dump) -> dict[str, list[Arrival]]:
    """What the record has of collectives, by the group's name."""
    found, later = dict[str, list[Arrival]](), dict[int, int]()
    for entry in reversed(dump.entries):
        if entry.started is None:
            continue
        if entry.state == "completed" and not entry.is_message:
            ended = entry.ended or 0
            left_by = ended or later.get(entry.thread, 0)
            num_bytes = entry.count * _width(entry.dtype)
            times = entry.started, ended, left_by
            arrival = Arrival(entry.number, entry.op, num_bytes, *times)
            found.setdefault(entry.group, []).append(arrival)
        if not entry.is_async:
            later[entry.thread] = entry.started
    return found


@cache
def _width(dtype: str) -> int:
    """Bytes of an element: of "float32", "bfloat16", "float8_e5m2", "bool"."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 1


def meetings(
    arrivals: Mapping[int, Sequence[Arrival]],
    hosts: Mapping[int, str],
    most: int | None = None,
) -> list[Meeting]:
    """What all ranks have on record, by number.

    Args:
        arrivals: of each rank of a group.
        hosts: where each rank is.
        most: how many of them, the last ones; None: all.
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
    ahead = _clocks(rows, hosts)
    return [_meeting(row, ahead) for row in rows]


def _meeting(row: Mapping[int, Arrival], ahead: Mapping[int, int]) -> Meeting:
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
    return Meeting(
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


def _clocks(
    rows: Sequence[Mapping[int, Arrival]], hosts: Mapping[int, str]
) -> dict[int, int]:
    """How far ahead of the first host's each rank's clock is, in nanoseconds."""
    first = hosts[min(hosts)]
    differences: dict[str, list[int]] = {host: [] for host in hosts.values()}
    for ends in _ends(rows, hosts) if len(differences) > 1 else ():
        for host, end in ends.items():
            differences[host].append(end - ends[first])
    ahead = {
        host: int(median(told)) if told else 0 for host, told in differences.items()
    }
    return {rank: ahead[host] for rank, host in hosts.items()}


def _ends(
    rows: Sequence[Mapping[int, Arrival]], hosts: Mapping[int, str]
) -> Iterator[dict[str, int]]:
    """When each host ended an operation that ends everywhere at once."""
    for row in rows:
        arrivals = list(row.values())
        if arrivals[0].op.startswith(_ENDS_TOGETHER) and all(a.ended for a in arrivals):
            by_host: dict[str, list[int]] = {}
            for rank, arrival in row.items():
                by_host.setdefault(hosts[rank], []).append(arrival.ended)
            yield {host: min(ended) for host, ended in by_host.items()}
