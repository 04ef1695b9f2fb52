"""DevicePart: a group as its operations on one type of device see it.

Where several backends serve a group, each numbers its operations. Tools that compare
the ranks by numbers see each backend as a group of its own.
"""

from __future__ import annotations

from datetime import timedelta

from allhands.backends.communicator import Communicator
from allhands.groups.visible_group import VisibleGroup

__all__ = ["DevicePart", "with_parts"]


class DevicePart:
    """The part of `group` that `communicator` carries; see `VisibleGroup`."""

    is_world = False

    def __init__(
        self, group: VisibleGroup, device: str, communicator: Communicator
    ) -> None:
        self._group, self._device = group, device
        self.group_name = f"{group.group_name}/{device}"
        self.global_ranks = group.global_ranks
        self.communicator = communicator

    @property
    def group_desc(self) -> str:
        """Free text."""
        return f"{self._group.group_desc}/{self._device}"

    @property
    def timeout(self) -> timedelta:
        """The time limit of operations without a limit of their own."""
        return self._group.timeout

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._group.rank()

    def size(self) -> int:
        """The number of ranks in the group."""
        return self._group.size()

    def global_rank(self, group_rank: int) -> int:
        """Return the world rank of the process that is `group_rank` in the group."""
        return self._group.global_rank(group_rank)


def with_parts(groups: list[VisibleGroup]) -> list[VisibleGroup]:
    """Return the groups, each followed by its parts that number their operations."""
    found: list[VisibleGroup] = []
    for group in groups:
        apart = group.communicator.counting_apart()
        parts = [DevicePart(group, device, each) for device, each in apart.items()]
        found += [group, *parts]
    return found
