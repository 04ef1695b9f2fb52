"""CheckingCommunicator: what stands in front of another one and compares ranks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.front import FrontCommunicator
from allhands.backends.native import NativeCommunicator
from allhands.rendezvous.ranges import in_world

__all__ = ["CheckingCommunicator", "second_group"]


def second_group(options: CommunicatorOptions, purpose: str) -> Communicator:
    """Return this rank's end of a native group of the same ranks.

    Raises:
        DistNetworkError: members are on several hosts, and some do not listen for the
            others.
    """
    name = f"{options.group_id} ({purpose})"
    own = replace(options, group_id=name, num_alike=-1 - options.num_alike)
    return NativeCommunicator(own)


class CheckingCommunicator(FrontCommunicator):
    """Passes calls on; its ranks tell each other of them over a group of their own.

    Args:
        communicator: carries out the operations.
        beside: a second group of the same ranks, for the comparisons only.
        options: the options of the group.
    """

    def __init__(
        self,
        communicator: Communicator,
        beside: Communicator,
        options: CommunicatorOptions,
    ) -> None:
        super().__init__(communicator)
        self._beside = beside
        self._rank, self._size = options.group_rank, options.group_size
        self._title = f"group {options.group_id!r}{in_world(options.world_ranks)}"

    def set_timeout(self, timeout: timedelta) -> None:
        """See `Communicator.set_timeout`."""
        super().set_timeout(timeout)
        self._beside.set_timeout(timeout)

    def abort(self, reason: str) -> None:
        """See `Communicator.abort`."""
        super().abort(reason)
        self._beside.abort(reason)

    def note_failure(self, reason: str, cause: str) -> None:
        """See `Communicator.note_failure`."""
        super().note_failure(reason, cause)
        self._beside.note_failure(reason, cause)

    def close(self, grace: float) -> None:
        """See `Communicator.close`."""
        try:
            super().close(grace)
        finally:
            self._beside.close(grace)
