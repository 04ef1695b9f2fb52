"""Guests: groups that torch.distributed made on the native engine, for tools to see."""

from __future__ import annotations

import weakref

from allhands.groups.visible_group import VisibleGroup
from allhands.rendezvous.roster import Roster

__all__ = ["Guests"]


class Guests:
    """The groups of another maker in this process, as long as other code holds them."""

    def __init__(self) -> None:
        self._groups: weakref.WeakValueDictionary[str, VisibleGroup] = (
            weakref.WeakValueDictionary()
        )
        self.roster: Roster | None = None
        """The processes of the guests' world; None if they have not met."""

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group: VisibleGroup) -> None:
        """Add `group`, instead of an earlier one of this name."""
        self._groups[group.group_name] = group

    def remove(self, group: VisibleGroup) -> None:
        """Remove `group`, unless a group of the next world has its name by now."""
        if self.has(group):
            del self._groups[group.group_name]
            if group.is_world:
                self.roster = None

    def has(self, group: VisibleGroup) -> bool:
        """Return whether `group` is one of these groups."""
        return self._groups.get(group.group_name) is group

    def groups(self) -> list[VisibleGroup]:
        """Return the groups."""
        found = [ref() for ref in self._groups.valuerefs()]  # a snapshot
        return [group for group in found if group is not None]
