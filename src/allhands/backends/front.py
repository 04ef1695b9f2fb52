"""FrontCommunicator: a communicator in front of another one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from allhands.arrays import Array
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.observer import Observer
from allhands.backends.work import Work

__all__ = ["FrontCommunicator"]


class FrontCommunicator(Communicator):
    """Passes every call on to `communicator`; subclasses override what they change."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        return self.communicator.submit(call)

    def together(self) -> AbstractContextManager[None]:
        """See `Communicator.together`."""
        return self.communicator.together()

    def empty_shared(
        self, shape: tuple[int, ...], dtype: Any, timeout: timedelta | None
    ) -> Array:
        """See `Communicator.empty_shared`."""
        return self.communicator.empty_shared(shape, dtype, timeout)

    def peer_array(self, array: Array, peer: int) -> Array:
        """See `Communicator.peer_array`."""
        return self.communicator.peer_array(array, peer)

    def divide(self, parts: list[list[int]], pg_options: Any) -> dict[str, Any]:
        """See `Communicator.divide`."""
        return self.communicator.divide(parts, pg_options)

    def set_timeout(self, timeout: timedelta) -> None:
        """See `Communicator.set_timeout`."""
        self.communicator.set_timeout(timeout)

    def abort(self, reason: str) -> None:
        """See `Communicator.abort`."""
        self.communicator.abort(reason)

    def observe(self, observer: Observer | None) -> None:
        """See `Communicator.observe`."""
        self.communicator.observe(observer)

    def flight_entries(
        self, collectives_after: int = 0, messages_after: int = 0
    ) -> list[dict[str, Any]]:
        """See `Communicator.flight_entries`."""
        return self.communicator.flight_entries(collectives_after, messages_after)

    def counting_apart(self) -> dict[str, Communicator]:
        """See `Communicator.counting_apart`."""
        return self.communicator.counting_apart()

    def endings(self) -> dict[int, str]:
        """See `Communicator.endings`."""
        return self.communicator.endings()

    def note_failure(self, reason: str, cause: str) -> None:
        """See `Communicator.note_failure`."""
        self.communicator.note_failure(reason, cause)

    def check_close(self) -> None:
        """See `Communicator.check_close`."""
        self.communicator.check_close()

    def close(self, grace: float) -> None:
        """See `Communicator.close`."""
        self.communicator.close(grace)
