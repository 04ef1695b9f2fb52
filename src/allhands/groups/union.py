"""Union: the ranks of several worlds that merged their groups.

They number themselves, as the ranks of a world do. The merged group has them all; what
is split from it has some, under the numbers that they have in the merged group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from allhands.rendezvous.roster import Roster
from allhands.store import Store

__all__ = ["Union"]


class Union:
    """See the module. Groups of it are for one thread at a time to make."""

    def __init__(self, name: str, store: Store, roster: Roster) -> None:
        self.name = name
        self.store = store
        self._roster = roster
        self._num_alike: Counter[tuple[int, ...]] = Counter()

    def roster(self) -> Roster:
        """Who the ranks are."""
        return self._roster

    def count_alike(self, ranks: Iterable[int]) -> int:
        """How many groups of these ranks were made; see `World.count_alike`."""
        key = tuple(ranks)
        self._num_alike[key] += 1
        return self._num_alike[key] - 1
