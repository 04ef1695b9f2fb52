"""CheckingCommunicator: what stands in front of another one and compares ranks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from allhands import settings
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.front import FrontCommunicator
from allhands.backends.native import NativeCommunicator
from allhands.rendezvous.ranges import in_world

__all__ = ["CheckingCommunicator", "checked_by"]


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


def checked_by(
    kind: type[CheckingCommunicator],
    check: str,
    communicator: Communicator,
    options: CommunicatorOptions,
) -> Communicator:
    """Return `communicator`, behind a `kind` if the setting asks for this check.

    The ranks get a second group for it, on the native engine. After an error
    `communicator` is closed.

    Raises:
        ValueError: the setting cannot be parsed.
        DistNetworkError: members are on several hosts, and some do not listen for the
            others.
    """
    try:
        if settings.check.get() != check or options.group_size == 1:
            return communicator
        name = f"{options.group_id} ({check} check)"
        own = replace(options, group_id=name, num_alike=-1 - options.num_alike)
        return kind(communicator, NativeCommunicator(own), options)
    except BaseException:
        communicator.close(0.0)
        raise
