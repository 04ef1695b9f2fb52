"""StagedCommunicator: arrays on devices, by way of CPU memory.

The native engine moves CPU memory. So that arrays on a GPU can be passed too, they are
copied to page-locked memory, from which the device copies fastest, and what the
operation wrote is copied back. A call returns, or its Work ends, after that.
"""

from __future__ import annotations

from typing import Any

from allhands.arrays import device_of, library_of
from allhands.arrays.devices import DeviceLibrary, as_device_library
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.followed import FollowedWork
from allhands.backends.front import FrontCommunicator
from allhands.backends.work import Work

__all__ = ["StagedCommunicator"]

_WRITTEN_WHOLLY = (
    *("all_gather", "all_gather_single", "all_gather_coalesced", "gather"),
    *("all_gather_single_coalesced", "gather_single", "scatter", "recv"),
    *("all_to_all", "all_to_all_single", "reduce_scatter", "reduce_scatter_single"),
    *("reduce_scatter_single_coalesced", "scan"),
)
"""Operations that leave no element of an output as it was."""


class StagedCommunicator(FrontCommunicator):
    """Lets `communicator` carry out calls of `rank` with arrays on devices."""

    def __init__(self, communicator: Communicator, rank: int) -> None:
        super().__init__(communicator)
        self._rank = rank

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        staging = _Staging(call, self._rank)
        work = self.communicator.submit(staging.call)
        if work is not None:
            return FollowedWork(work, staging.copy_back, call.outputs())
        if not call.returns_work:
            staging.copy_back()
        return None


class _Staging:
    """The arrays of one call and their copies in CPU memory."""

    def __init__(self, call: Call, rank: int) -> None:
        self._is_written_wholly = call.op in _WRITTEN_WHOLLY
        self._used: dict[int, DeviceLibrary] = {}
        self._written: list[tuple[DeviceLibrary, Any, Any]] = []
        self.call = call.mapped(rank, self._stage)
        self._synchronize()

    def copy_back(self) -> None:
        """Copy what the operation wrote to the devices, and wait for that."""
        for library, array, copy in self._written:
            library.assign(array, copy)
        self._synchronize()

    def _stage(self, array: Any, is_read: bool, is_written: bool) -> Any:
        if device_of(array) == "cpu":
            return array
        library = as_device_library(library_of(array))
        library.device_memory(array, is_written)  # raises if it is refused
        copy = library.empty_on_host(array)
        if is_read or not self._is_written_wholly:
            library.assign(copy, array)
        if is_written:
            self._written.append((library, array, copy))
        self._used[library.device_number(array)] = library
        return copy

    def _synchronize(self) -> None:
        """Wait for the copies, which are made in streams of this thread."""
        for device, library in self._used.items():
            library.synchronize(device)
