"""Union: the ranks of several worlds that merged their groups.

The ranks have numbers of their own, as the ranks of a world do. The merged group has
all of them. A group that is split from it has some of them, and keeps their numbers in
the merged group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from allhands.rendezvous.roster import Roster
from allhands.store import Store

__all__ = ["Union"]


class Union:
    """See the module. Only one thread at a time may make groups of it."""

    def __init__(self, name: str, store: Store, roster: Roster) -> None:
        self.name = name
        self.store = store
        self._roster = roster
        self._num_alike: Counter[tuple[int, ...]] = Counter()

    def roster(self) -> Roster:
        """Return the processes of the ranks."""
        return self._roster

    def count_alike(self, ranks: Iterable[int]) -> int:
        """Return the number of earlier groups of these ranks, as `World` does."""
        key = tuple(ranks)
        self._num_alike[key] += 1
        return self._num_alike[key] - 1
