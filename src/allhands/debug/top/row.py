"""Row: what one rank does, as the table and the JSON of `allhands top` have it."""

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

__all__ = ["Clock", "Current", "Row", "row_of", "row_of_dead"]

_MOST_AWAITED = 8


class Clock:
    """Turns times of flight records into seconds; the longer it lives, the better."""

    def __init__(self) -> None:
        self._ticks, self._time = _C.ticks_now(), time.monotonic()

    def seconds_since(self, ticks: int) -> float | None:
        """None: of a time that is not known, or when nothing has been measured yet."""
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
    """Number of the collective in its group; of a message, among those of the rank."""
    peer: int | None
    """The other rank of a message, in the group; None: any, or it is no message."""
    is_under_way: bool
    seconds: float | None
    """Since it began; of one that has ended since then, at most. None: not known."""


@dataclass(frozen=True)
class Row:
    """What one rank does. Immutable."""

    rank: int
    pid: int
    host: str
    state: str
    """`computes`, `transfers`, `waits`, `stopped`, `left` or `dead`."""
    waits_for: tuple[int, ...]
    """The first ranks of this host that have not come where this one waits."""
    num_awaited: int
    operation: Current | None
    figures: Figures
    cpu: float
    """CPUs in use, 1.0: one all the time."""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
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
) -> Row:
    """`state`: of a rank that does not run; else empty, and the look says."""
    awaited = look.waits.get(rank, frozenset[int]())
    found = _current(look.views[rank])
    current = None if found is None else _told(*found, clock)
    is_inside = found is not None and _is_waited_for(*found)
    running = "waits" if awaited else "transfers" if is_inside else "computes"
    return Row(
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


def row_of_dead(rank: int, pid: int, host: str) -> Row:
    """Of one of which nothing is left."""
    figures = Figures(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Row(rank, pid, host, "dead", (), 0, None, figures, 0.0)


def _is_waited_for(group: GroupView, operation: Operation) -> bool:
    is_waited_for = not operation.is_async or group.num_waiting > 0
    return operation.is_under_way and is_waited_for


def _current(
    groups: Collection[GroupView],
) -> tuple[GroupView, Operation] | None:
    """That which its caller waits for; else one that is under way; else the last."""
    found = [(group, each) for group in groups for each in group.operations]
    return max(
        found,
        key=lambda pair: (
            _is_waited_for(*pair),
            pair[1].is_under_way,
            # Of those under way the oldest: the others are in their turn after it.
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
