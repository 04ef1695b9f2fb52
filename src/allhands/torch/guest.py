"""Guest: a group of torch.distributed as this package's tools see it."""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import TYPE_CHECKING

from allhands.backends.communicator import Communicator

if TYPE_CHECKING:
    from allhands.torch.parent import ParentGroup

__all__ = ["Guest"]


class Guest:
    """See `VisibleGroup`. It is held by the group, which it does not hold.

    Args:
        group: that of torch.
        communicator: what carries out its operations.
        global_ranks: the members' ranks in torch's world.
        is_world: whether these are all, and the group is torch's default.
    """

    def __init__(
        self,
        group: ParentGroup,
        communicator: Communicator,
        global_ranks: tuple[int, ...],
        is_world: bool,
    ) -> None:
        self._group = weakref.ref(group)
        self._desc, self._timeout = group.group_desc, group.timeout
        self._rank: int = group.rank()
        self.group_name: str = group.group_name
        self.is_world = is_world
        self.global_ranks = global_ranks
        self.communicator = communicator

    def _look(self) -> None:
        """Learn what torch has set by now."""
        group = self._group()
        if group is not None:  # or who looks now is the last to hold this
            self._desc, self._timeout = group.group_desc, group.timeout

    @property
    def group_desc(self) -> str:
        """Free text."""
        self._look()
        return self._desc

    @property
    def timeout(self) -> timedelta:
        """Limit of operations that are given none."""
        self._look()
        return self._timeout

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return len(self.global_ranks)

    def global_rank(self, group_rank: int) -> int:
        """The rank in torch's world of the process that is `group_rank` here."""
        return self.global_ranks[group_rank]
