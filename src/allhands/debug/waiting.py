"""stats: how ranks waited for each other in a group, from the flight record."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from allhands.debug.dumps import Dump
from allhands.debug.ended_collectives import (
    Arrival,
    EndedCollective,
    arrivals_of,
    ended_collectives,
)
from allhands.debug.record import told_now
from allhands.groups.arguments import Group, member_of
from allhands.groups.world import current
from allhands.ops.objects import all_gather_object

__all__ = ["OperationStats", "operation_stats", "stats"]


@dataclass(frozen=True)
class OperationStats:
    """The calls of one operation of a group, from the records of all its ranks.

    Immutable. Times are in seconds, and ranks are world ranks.
    """

    op: str
    count: int
    """The number of counted calls."""
    num_bytes: int
    """The bytes of all these calls: of the elements on which the ranks agree."""
    waiting: Mapping[int, float]
    """For each rank, how long it waited in total for ranks that came later."""
    transfer: float | None
    """The total time of the calls after the last rank had come.

    It excludes calls whose end was not measured. None if no end was, as for less than
    1,024 elements.
    """
    p50: float | None
    """The median time of a call on a rank, from its coming to its end."""
    p99: float | None
    """All but one percent of the calls take no longer."""
    times_last: Mapping[int, int]
    """For each rank, how often it came last."""


def stats(
    group: Group = None, *, timeout: timedelta | None = None
) -> list[OperationStats]:
    """Return how long ranks of `group` waited for each other in its last collectives.

    Every rank of `group` calls it, and all get the same result. Each rank reads its
    flight record, which keeps the last 2,048 collectives (`ALLHANDS_RECORD_LENGTH`),
    and the ranks exchange the contents. No operation takes longer for it. A collective
    counts if it has ended on all ranks. The exchange is an `all_gather_object`, whose
    collectives are on record in the next call. Messages do not count. Backends other
    than the native one have no record, and give an empty list. So does a group of one
    rank, which waits for nobody.

    Returns:
        One entry for each operation, sorted by the ranks' waits, the longest first.

    Raises:
        ValueError: this rank is not in the group.
        DistBackendError: see `all_gather_object`.

    Example:
        ```python
        for told in dist.debug.stats():
            slowest = max(told.times_last, key=told.times_last.get)
            print(told.op, told.count, told.waiting, "mostly for rank", slowest)
        ```
    """
    member = member_of(group)
    record = Dump.of(told_now(current(), "asked for"))
    mine = [tuple(each) for each in arrivals_of(record).get(member.group_name, [])]
    found: list[Any] = [None] * member.size()
    all_gather_object(found, (socket.gethostname(), mine), member, timeout=timeout)
    hosts = {member.global_rank(rank): host for rank, (host, _) in enumerate(found)}
    arrivals = {
        member.global_rank(rank): [Arrival(*each) for each in theirs]
        for rank, (_, theirs) in enumerate(found)
    }
    return operation_stats(ended_collectives(arrivals, hosts))


def operation_stats(met: Sequence[EndedCollective]) -> list[OperationStats]:
    """Return statistics by operation, sorted by the ranks' waits, the longest first."""
    by_op: dict[str, list[EndedCollective]] = {}
    for meeting in met:
        by_op.setdefault(meeting.op, []).append(meeting)
    found = [_of(op, those) for op, those in by_op.items()]
    return sorted(found, key=lambda told: -sum(told.waiting.values()))


def _of(op: str, met: Sequence[EndedCollective]) -> OperationStats:
    durations = sorted(each for meeting in met for each in meeting.durations)
    transfers = [meeting.transfer for meeting in met if meeting.transfer is not None]
    last = Counter(meeting.last for meeting in met)
    ranks = sorted(met[0].waits)
    return OperationStats(
        op,
        len(met),
        sum(meeting.num_bytes for meeting in met),
        {rank: sum(meeting.waits[rank] for meeting in met) for rank in ranks},
        sum(transfers) if transfers else None,
        _percentile(durations, 0.5),
        _percentile(durations, 0.99),
        {rank: last[rank] for rank in ranks},
    )


def _percentile(values: Sequence[float], share: float) -> float | None:
    """Return the least of the sorted `values` that this share does not exceed."""
    if not values:
        return None
    return values[min(len(values) - 1, int(share * len(values)))]
