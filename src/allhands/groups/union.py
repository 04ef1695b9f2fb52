"""Union: the ranks of several worlds that merged their groups.

The ranks have numbers of their own, as the ranks of a world do. The merged group has
all of them. A group that is split from it has some of them, and keeps their numbers in
the merged group.
"""

from __future__ import annotations

from allhands.groups.group_numbers import GroupNumbers
from allhands.rendezvous.roster import Roster
from allhands.store import Store

__all__ = ["Union"]


class Union:
    """See the module. Only one thread at a time may make groups of it."""

    def __init__(self, name: str, store: Store, roster: Roster) -> None:
        self.name = name
        self.store = store
        self._roster = roster
        self.numbers = GroupNumbers()

    def roster(self) -> Roster:
        """Return the processes of the ranks."""
        return self._roster
