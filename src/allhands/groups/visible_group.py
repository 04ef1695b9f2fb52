"""VisibleGroup: the attributes of a group that tools read when they look into a job."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from allhands.backends.communicator import Communicator

__all__ = ["VisibleGroup"]


class VisibleGroup(Protocol):
    """A group of this package, or one of torch.distributed on this engine.

    `ProcessGroup` implements it.
    """

    group_name: str
    is_world: bool
    global_ranks: tuple[int, ...]
    communicator: Communicator

    @property
    def group_desc(self) -> str:
        """Free text."""

    @property
    def timeout(self) -> timedelta:
        """The time limit of operations without a limit of their own."""

    def rank(self) -> int:
        """This process's rank in the group."""

    def size(self) -> int:
        """The number of ranks in the group."""

    def global_rank(self, group_rank: int) -> int:
        """Return the world rank of the process that is `group_rank` in the group."""
