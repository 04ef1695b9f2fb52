"""A backend that moves nothing: every operation succeeds at once.

For trying out a program's structure for any world size in one process. Outputs keep
what they held.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from allhands.arrays import Array, library_of_dtype
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.work import Work

__all__ = ["FakeCommunicator", "FakeWork", "create"]


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `registry.make_communicator`; any `pg_options` are fine."""
    return FakeCommunicator()


class FakeWork(Work):
    """Work that is finished from the start; as a receive it came from rank `source`."""

    def __init__(self, outputs: list[Array], source: int = 0, tag: int = 0) -> None:
        super().__init__(outputs)
        self._source = source
        self._tag = tag

    def wait_for(self, timeout: timedelta | None) -> None:
        """Return at once."""

    def is_completed(self) -> bool:
        """Always true."""
        return True

    def exception(self) -> None:
        """Never any."""

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call it now."""
        callback()

    def source_rank(self) -> int:
        """The rank that was asked for; 0 for any."""
        return self._source

    def envelope(self) -> tuple[int, int, int]:
        """An empty message from there."""
        return self._source, self._tag, 0


class FakeCommunicator(Communicator):
    """See the module."""

    def submit(self, call: Call) -> Work | None:
        """Leave the outputs as they are; there is no message to find."""
        if not call.returns_work or call.op == "iprobe":
            return None
        return FakeWork(call.outputs(), call.peer or 0, max(call.tag, 0))

    def empty_shared(
        self, shape: tuple[int, ...], dtype: Any, timeout: timedelta | None
    ) -> Array:
        """Return zeros."""
        library = library_of_dtype(dtype)
        itemsize = library.from_bytes(np.empty(0, np.uint8), (0,), dtype).itemsize
        memory = np.zeros(math.prod(shape) * itemsize, np.uint8)
        return library.from_bytes(memory, shape, dtype)

    def peer_array(self, array: Array, peer: int) -> Array:
        """Return `array`."""
        return array

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing."""

    def abort(self, reason: str) -> None:
        """Do nothing."""

    def close(self, grace: float) -> None:
        """Do nothing."""
