"""Arrays in the memory of a device, such as a GPU.

The core reads only CPU memory, so `as_buffer` raises `DeviceArrayError` for them. A
backend that works on devices, or copies from them, uses the functions here. Work on a
device runs in streams: a function that says "on the current stream" returns before the
device has done it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

from allhands._C import Buffer

__all__ = ["DeviceArrayError", "DeviceLibrary", "as_device_library"]


class DeviceArrayError(RuntimeError):
    """The array is in the memory of a device that other functions here reach."""


class DeviceLibrary(Protocol):
    """What a library has whose `as_buffer` raises `DeviceArrayError`."""

    def device_memory(self, array: Any, writable: bool) -> Buffer:
        """Return the memory of `array`, whose address is the device's.

        It raises what `as_buffer` raises for other reasons than the device.
        """

    def device_number(self, array: Any) -> int:
        """Return the number of the device that holds `array`."""

    def contiguous(self, array: Any) -> Any:
        """Return a contiguous copy of `array`, made on the current stream."""

    def assign(self, array: Any, source: Any) -> None:
        """Copy `source`, an array here or on the device, on the current stream."""

    def empty_on_host(self, array: Any) -> Any:
        """Return an array like `array` in page-locked CPU memory, not initialised."""

    def current_stream(self, device: int) -> int:
        """Return the handle of this thread's current stream on a device."""

    def on_stream(self, handle: int, device: int) -> AbstractContextManager[Any]:
        """Make a stream the current one of this thread while in the context."""

    def synchronize(self, device: int) -> None:
        """Wait until the device has done all work of the current stream."""


def as_device_library(library: Any) -> DeviceLibrary:
    """Return `library`, of an array for which `as_buffer` raises `DeviceArrayError`."""
    return cast(DeviceLibrary, library)
