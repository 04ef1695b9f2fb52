"""Tally: what a rank did between two moments, by counters and by looks.

The ranks themselves count operations and bytes. The share of time that a rank spent in
operations is the share of looks that found it in one: of all looks since the figures
before, and of earlier ones where those are few. Reading a clock at the begin and end of
each operation would slow down short operations.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from allhands.debug.top.looks import Look, is_communicating
from allhands.debug.top.memory import GroupView

__all__ = ["Counts", "Figures", "Tally"]

_MOST_GONE = 64  # former groups of a rank that are counted separately
_LEAST_LOOKS = 40  # from which shares are taken, once there were as many


@dataclass(frozen=True)
class Figures:
    """The figures of one rank at one moment. Immutable."""

    num_operations: int
    """In all groups of the rank, also those destroyed while it was watched."""
    num_bytes: int
    operations_per_second: float
    bytes_per_second: float
    """Both since the figures before."""
    in_communication: float
    """The share of time, from 0 to 1, in operations of any kind."""
    waiting: float
    """The share of time in operations, waiting for a rank that had not come."""
    awaited: float
    """The share of time in which others waited for it while it waited for no rank."""


class Counts:
    """The operations that one rank has begun, in all groups seen so far."""

    def __init__(self) -> None:
        self._by_group = dict[tuple[int, int], tuple[int, int]]()
        """Sorted by the time of the last look, with former groups."""
        self._before = 0, 0
        """The sum for groups that ended long ago."""

    def update(self, groups: Collection[GroupView]) -> None:
        """Update from the current groups; a former group keeps its last counts."""
        for group in groups:
            begun = group.num_collectives + group.num_messages
            key = group.key, group.generation
            self._by_group.pop(key, None)
            self._by_group[key] = begun, group.num_bytes
        # A group that was being changed during the look comes again.
        while len(self._by_group) > len(groups) + _MOST_GONE:
            count, size = self._by_group.pop(next(iter(self._by_group)))
            self._before = self._before[0] + count, self._before[1] + size

    @property
    def total(self) -> tuple[int, int]:
        """Operations and bytes."""
        counts = [self._before, *self._by_group.values()]
        return sum(count for count, _ in counts), sum(size for _, size in counts)


class _Seen(NamedTuple):
    """What one look found of the ranks, by their numbers."""

    all: frozenset[int]
    inside: frozenset[int]
    waiting: frozenset[int]
    awaited: frozenset[int]

    @classmethod
    def of(cls, look: Look) -> _Seen:
        """Return what `look` found."""
        inside = (rank for rank, view in look.views.items() if is_communicating(view))
        ranks = frozenset(look.views), frozenset(inside), frozenset(look.waits)
        return cls(*ranks, look.culprits)


class _Sums:
    """In how many looks each rank was seen, and how."""

    def __init__(self, looks: Iterable[_Seen] = ()) -> None:
        self.num_looks = 0
        self._counts = [Counter[int]() for _ in _Seen._fields]
        for look in looks:
            self.add(look)

    def add(self, look: _Seen) -> None:
        """Count one more look."""
        self.num_looks += 1
        for counts, ranks in zip(self._counts, look, strict=True):
            counts.update(ranks)

    def shares_of(self, rank: int) -> tuple[float, float, float]:
        """Return the shares in communication, waiting and awaited."""
        num, *found = (counts[rank] for counts in self._counts)
        inside, waiting, awaited = (count / max(1, num) for count in found)
        return inside, waiting, awaited


class Tally:
    """The counts and looks of all ranks of a job."""

    def __init__(self) -> None:
        self._counts = dict[int, Counts]()
        self._before = dict[int, tuple[int, int]]()
        self._since = _Sums()
        self._last = deque[_Seen](maxlen=_LEAST_LOOKS)

    @property
    def num_looks(self) -> int:
        """The number of looks from which the next shares come."""
        return max(self._since.num_looks, len(self._last))

    def add(self, look: Look) -> None:
        """Count the observations of a look."""
        for rank, groups in look.views.items():
            self._update(rank, groups)
        seen = _Seen.of(look)
        self._since.add(seen)
        self._last.append(seen)

    def figures(
        self, views: dict[int, Collection[GroupView]], seconds: float
    ) -> dict[int, Figures]:
        """Return the figures now, `seconds` after the last call.

        The first time there are no rates yet: they are 0.
        """
        is_enough = self._since.num_looks >= _LEAST_LOOKS
        sums = self._since if is_enough else _Sums(self._last)
        self._since = _Sums()
        return {
            rank: self._figures(rank, view, seconds, sums.shares_of(rank))
            for rank, view in views.items()
        }

    def _figures(
        self,
        rank: int,
        groups: Collection[GroupView],
        seconds: float,
        shares: tuple[float, float, float],
    ) -> Figures:
        counts = self._update(rank, groups).total
        before = self._before.get(rank, counts)
        self._before[rank] = counts
        return Figures(
            *counts,
            max(0, counts[0] - before[0]) / seconds,
            max(0, counts[1] - before[1]) / seconds,
            *shares,
        )

    def _update(self, rank: int, groups: Collection[GroupView]) -> Counts:
        counts = self._counts.setdefault(rank, Counts())
        counts.update(groups)
        return counts
