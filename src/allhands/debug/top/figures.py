"""Tally: what a rank did between two moments, by counters and by looks.

Operations and bytes are counted by the ranks themselves. In what share of the time a
rank was in an operation is what share of the looks found it there: to read a clock at
the beginning and the end of each operation would make the short ones slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from allhands.debug.top.looks import Look, is_communicating
from allhands.debug.top.memory import GroupView

__all__ = ["Counts", "Figures", "Tally"]

_MOST_GONE = 64  # groups of a rank that are told apart when they are there no more


@dataclass(frozen=True)
class Figures:
    """What one rank did since the figures before. Immutable."""

    num_operations: int
    """Since it has its groups, those that were destroyed while it was watched too."""
    num_bytes: int
    operations_per_second: float
    bytes_per_second: float
    in_communication: float
    """Shares of the time, from 0 to 1: in operations of any kind,"""
    waiting: float
    """there for a rank that had not come,"""
    awaited: float
    """and while others waited for it, who itself waited for nobody."""


class Counts:
    """What one rank has begun in all groups that it has had when it was looked at."""

    def __init__(self) -> None:
        self._by_group = dict[tuple[int, int], tuple[int, int]]()
        """The one that was seen last is the last; those that are gone, too."""
        self._before = 0, 0
        """Of groups that are gone for long."""

    def update(self, groups: Collection[GroupView]) -> None:
        """These are there now; of a group that is gone what it had last counts."""
        for group in groups:
            begun = group.num_collectives + group.num_messages
            key = group.key, group.generation
            self._by_group.pop(key, None)
            self._by_group[key] = begun, group.num_bytes
        # One that was being changed while it was read comes again.
        while len(self._by_group) > len(groups) + _MOST_GONE:
            count, size = self._by_group.pop(next(iter(self._by_group)))
            self._before = self._before[0] + count, self._before[1] + size

    @property
    def total(self) -> tuple[int, int]:
        """Operations and bytes."""
        counts = [self._before, *self._by_group.values()]
        return sum(count for count, _ in counts), sum(size for _, size in counts)


class Tally:
    """What was counted and seen of all ranks of a job."""

    def __init__(self) -> None:
        self._counts = dict[int, Counts]()
        self._before = dict[int, tuple[int, int]]()
        self._clear()

    def _clear(self) -> None:
        self.num_looks = 0
        self._seen, self._inside = Counter[int](), Counter[int]()
        self._waiting, self._awaited = Counter[int](), Counter[int]()

    def add(self, look: Look) -> None:
        """Count what was seen."""
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
        """Of the `seconds` since this was called last; then it begins anew.

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
