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
    """See `VisibleGroup`. A torch group holds its Guest, which does not hold the group.

    Args:
        group: the group of torch.
        communicator: carries out the group's operations.
        global_ranks: the members' ranks in torch's world.
        is_world: whether these are all ranks, and the group is torch's default.
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
        """Read what torch has set by now."""
        group = self._group()
        if group is not None:  # otherwise only the caller still holds this
            self._desc, self._timeout = group.group_desc, group.timeout

    @property
    def group_desc(self) -> str:
        """Free text."""
        self._look()
        return self._desc

    @property
    def timeout(self) -> timedelta:
        """The limit of operations without a limit of their own."""
        self._look()
        return self._timeout

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks in the group."""
        return len(self.global_ranks)

    def global_rank(self, group_rank: int) -> int:
        """Return the rank in torch's world of the process that is `group_rank` here."""
        return self.global_ranks[group_rank]
