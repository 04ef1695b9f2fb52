"""RankRow: what one rank does, for the table and the JSON of `allhands top`."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from allhands import _C
from allhands.debug.top.figures import Figures
from allhands.debug.top.jobs import WatchedRank
from allhands.debug.top.looks import Look
from allhands.debug.top.memory import GroupView, Operation

__all__ = ["Clock", "Current", "RankRow", "row_of", "row_of_dead"]

_MOST_AWAITED = 8


class Clock:
    """Converts times of flight records to seconds; its precision grows with its age."""

    def __init__(self) -> None:
        self._ticks, self._time = _C.ticks_now(), time.monotonic()

    def seconds_since(self, ticks: int) -> float | None:
        """Return the seconds since `ticks`; None if unknown or not yet measurable."""
        now, elapsed = _C.ticks_now(), time.monotonic() - self._time
        if ticks == 0 or now <= self._ticks or elapsed <= 0:
            return None
        return max(0.0, (now - ticks) * elapsed / (now - self._ticks))


@dataclass(frozen=True)
class Current:
    """The operation that a rank is in, or was in last. Immutable."""

    op: str
    group: str
    sequence: int
    """The number of the collective in its group, or of the message of the rank."""
    peer: int | None
    """The other rank of a message, in the group; None if any, or not a message."""
    is_under_way: bool
    seconds: float | None
    """Since its begin, or at most since its end; None if unknown."""


@dataclass(frozen=True)
class RankRow:
    """What one rank does. Immutable."""

    rank: int
    pid: int
    host: str
    state: str
    """`computes`, `transfers`, `waits`, `stopped`, `left` or `dead`."""
    waits_for: tuple[int, ...]
    """The first ranks of this host for which this rank waits."""
    num_awaited: int
    operation: Current | None
    figures: Figures
    cpu: float
    """CPUs in use; 1.0 is one CPU all the time."""

    def as_json(self) -> dict[str, Any]:
        """Return the row for programs."""
        told = asdict(self)
        figures = told.pop("figures")
        return {**told, **figures}


def row_of(
    rank: int,
    watched: WatchedRank,
    state: str,
    look: Look,
    figures: Figures,
    cpu: float,
    clock: Clock,
) -> RankRow:
    """Make a row; `state` is that of a rank that does not run, else empty."""
    awaited = look.waits.get(rank, frozenset[int]())
    found = _current(look.views[rank])
    current = None if found is None else _told(*found, clock)
    is_inside = found is not None and _is_waited_for(*found)
    running = "waits" if awaited else "transfers" if is_inside else "computes"
    return RankRow(
        rank,
        watched.pid,
        watched.header.host,
        state or running,
        tuple(sorted(awaited)[:_MOST_AWAITED]),
        len(awaited),
        current,
        figures,
        cpu,
    )


def row_of_dead(rank: int, pid: int, host: str) -> RankRow:
    """Make the row of a rank of which nothing is left."""
    figures = Figures(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return RankRow(rank, pid, host, "dead", (), 0, None, figures, 0.0)


def _is_waited_for(group: GroupView, operation: Operation) -> bool:
    is_waited_for = not operation.is_async or group.num_waiting > 0
    return operation.is_under_way and is_waited_for


def _current(
    groups: Collection[GroupView],
) -> tuple[GroupView, Operation] | None:
    """Return the operation that its caller waits for, or one under way, or the last."""
    found = [(group, each) for group in groups for each in group.operations]
    return max(
        found,
        key=lambda pair: (
            _is_waited_for(*pair),
            pair[1].is_under_way,
            # The oldest of those under way: the others come after it.
            -pair[1].started if pair[1].is_under_way else pair[1].started,
        ),
        default=None,
    )


def _told(group: GroupView, operation: Operation, clock: Clock) -> Current:
    has_peer = operation.is_message and operation.partner >= 0
    since = operation.started if operation.is_under_way else operation.ended
    return Current(
        operation.op,
        group.name,
        operation.number,
        operation.partner if has_peer else None,
        operation.is_under_way,
        clock.seconds_since(since or operation.started),
    )
