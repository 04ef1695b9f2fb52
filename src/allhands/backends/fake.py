"""A backend that transfers no data: every operation succeeds at once.

With it, one process can try a program's structure for any world size. Outputs do not
change.
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
    """See `registry.make_communicator`; `pg_options` are ignored."""
    return FakeCommunicator()


class FakeWork(Work):
    """Work that has ended from the start; as a receive it came from rank `source`."""

    def __init__(self, outputs: list[Array], source: int = 0, tag: int = 0) -> None:
        super().__init__(outputs)
        self._source = source
        self._tag = tag

    def wait_for(self, timeout: timedelta | None) -> None:
        """Return at once."""

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def exception(self) -> None:
        """Return None."""

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` now."""
        callback()

    def source_rank(self) -> int:
        """Return the requested rank; 0 for any."""
        return self._source

    def envelope(self) -> tuple[int, int, int]:
        """Return the envelope of an empty message from this rank."""
        return self._source, self._tag, 0


class FakeCommunicator(Communicator):
    """See the module."""

    def submit(self, call: Call) -> Work | None:
        """Leave the outputs unchanged; a probe finds no message."""
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
