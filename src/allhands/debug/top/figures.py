"""Tally: what a rank did between two moments, by counters and by looks.

The ranks themselves count operations and bytes. The share of time that a rank spent in
operations is the share of looks that found it in one. Reading a clock at the begin and
end of each operation would slow down short operations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from allhands.debug.top.looks import Look, is_communicating
from allhands.debug.top.memory import GroupView

__all__ = ["Counts", "Figures", "Tally"]

_MOST_GONE = 64  # former groups of a rank that are counted separately


@dataclass(frozen=True)
class Figures:
    """The figures of one rank since the previous ones. Immutable."""

    num_operations: int
    """In all groups of the rank, also those destroyed while it was watched."""
    num_bytes: int
    operations_per_second: float
    bytes_per_second: float
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


class Tally:
    """The counts and looks of all ranks of a job."""

    def __init__(self) -> None:
        self._counts = dict[int, Counts]()
        self._before = dict[int, tuple[int, int]]()
        self._clear()

    def _clear(self) -> None:
        self.num_looks = 0
        self._seen, self._inside = Counter[int](), Counter[int]()
        self._waiting, self._awaited = Counter[int](), Counter[int]()

    def add(self, look: Look) -> None:
        """Count the observations of a look."""
        self.num_looks += 1
        for rank, groups in look.views.items():
            self._update(rank, groups)
        self._seen.update(look.views.keys())
        views = look.views.items()
        self._inside.update(rank for rank, view in views if is_communicating(view))
        self._waiting.update(look.waits.keys())
        self._awaited.update(look.culprits)

    def figures(
        self, views: dict[int, Collection[GroupView]], seconds: float
    ) -> dict[int, Figures]:
        """Return the figures of the `seconds` since the last call; start anew.

        The first time there are no rates yet: they are 0.
        """
        told = {
            rank: self._figures(rank, view, seconds) for rank, view in views.items()
        }
        self._clear()
        return told

    def _figures(
        self, rank: int, groups: Collection[GroupView], seconds: float
    ) -> Figures:
        counts = self._update(rank, groups).total
        before = self._before.get(rank, counts)
        self._before[rank] = counts
        looks = max(1, self._seen[rank])
        return Figures(
            *counts,
            max(0, counts[0] - before[0]) / seconds,
            max(0, counts[1] - before[1]) / seconds,
            self._inside[rank] / looks,
            self._waiting[rank] / looks,
            self._awaited[rank] / looks,
        )

    def _update(self, rank: int, groups: Collection[GroupView]) -> Counts:
        counts = self._counts.setdefault(rank, Counts())
        counts.update(groups)
        return counts
