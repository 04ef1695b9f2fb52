"""VisibleGroup: what tools that look into a job read of a group."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from allhands.backends.communicator import Communicator

__all__ = ["VisibleGroup"]


class VisibleGroup(Protocol):
    """A group of this package, or one of torch.distributed on this engine.

    See `ProcessGroup`, which is one.
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
        """The time limit of operations that are given none."""

    def rank(self) -> int:
        """This process's rank in the group."""

    def size(self) -> int:
        """How many ranks the group has."""

    def global_rank(self, group_rank: int) -> int:
        """The rank in the world of the process that is `group_rank` here."""
