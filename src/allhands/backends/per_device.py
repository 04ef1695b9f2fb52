"""PerDeviceCommunicator: serves several device types, each by its own backend.

A call goes to the communicator that serves its first array. A call without arrays goes
to the communicator for the CPU. The object is as thread-safe as these communicators.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

from allhands.arrays import Array, device_of
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.observer import Observer
from allhands.backends.request import PersistentRequest
from allhands.backends.work import Work

__all__ = ["PerDeviceCommunicator"]


class PerDeviceCommunicator(Communicator):
    """Passes calls on to `communicators`, by device type."""

    def __init__(self, communicators: dict[str, Communicator]) -> None:
        self._by_device = communicators
        self._distinct = list(dict.fromkeys(communicators.values()))

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        return self.serving(call.device()).submit(call)

    @contextmanager
    def together(self) -> Iterator[None]:
        """See `Communicator.together`."""
        with ExitStack() as blocks:
            for communicator in self._distinct:
                blocks.enter_context(communicator.together())
            yield

    def prepare(self, call: Call) -> PersistentRequest | None:
        """See `Communicator.prepare`."""
        return self.serving(call.device()).prepare(call)

    def empty_shared(
        self, shape: tuple[int, ...], dtype: Any, timeout: timedelta | None
    ) -> Array:
        """See `Communicator.empty_shared`; the array is in CPU memory."""
        return self.serving("cpu").empty_shared(shape, dtype, timeout)

    def peer_array(self, array: Array, peer: int) -> Array:
        """See `Communicator.peer_array`."""
        return self.serving(device_of(array)).peer_array(array, peer)

    def divide(self, parts: list[list[int]], pg_options: Any) -> dict[str, Any]:
        """See `Communicator.divide`."""
        divided: dict[str, Any] = {}
        for communicator in self._distinct:
            divided |= communicator.divide(parts, pg_options)
        return divided

    def set_timeout(self, timeout: timedelta) -> None:
        """See `Communicator.set_timeout`."""
        for communicator in self._distinct:
            communicator.set_timeout(timeout)

    def abort(self, reason: str) -> None:
        """See `Communicator.abort`."""
        for communicator in self._distinct:
            communicator.abort(reason)

    def observe(self, observer: Observer | None) -> None:
        """See `Communicator.observe`."""
        for communicator in self._distinct:
            communicator.observe(observer)

    def flight_entries(
        self, collectives_after: int = 0, messages_after: int = 0
    ) -> list[dict[str, Any]]:
        """See `Communicator.flight_entries`."""
        return self._distinct[0].flight_entries(collectives_after, messages_after)

    def counting_apart(self) -> dict[str, Communicator]:
        """See `Communicator.counting_apart`: all but the first one."""
        by_device = self._by_device.items()
        first = self._distinct[0]
        return {device: each for device, each in by_device if each is not first}

    def endings(self) -> dict[int, str]:
        """See `Communicator.endings`."""
        return {rank: how for c in self._distinct for rank, how in c.endings().items()}

    def note_failure(self, reason: str, cause: str) -> None:
        """See `Communicator.note_failure`."""
        for communicator in self._distinct:
            communicator.note_failure(reason, cause)

    def check_close(self) -> None:
        """See `Communicator.check_close`."""
        for communicator in self._distinct:
            communicator.check_close()

    def close(self, grace: float) -> None:
        """See `Communicator.close`."""
        for communicator in self._distinct:
            communicator.close(grace)

    def serving(self, device: str) -> Communicator:
        """Return the communicator that serves this device type.

        Raises:
            RuntimeError: no communicator serves it.
        """
        if device not in self._by_device:
            raise RuntimeError(
                f"No backend type associated with device type {device}: this group "
                f"serves {', '.join(self._by_device)}"
            )
        return self._by_device[device]
