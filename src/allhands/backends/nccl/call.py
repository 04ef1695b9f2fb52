"""NcclCall: the arrays of one call as contiguous memory of one GPU.

NCCL takes contiguous memory. What is not contiguous is copied on the GPU. Arrays in CPU
memory, such as those of objects, are copied to the GPU and back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from allhands._C import Buffer
from allhands.arrays import as_buffer, device_of, library_of
from allhands.arrays.devices import DeviceLibrary, as_device_library
from allhands.backends.call import Call
from allhands.backends.rows import row_to_read, row_to_write

__all__ = ["NcclCall", "with_an_array"]


class NcclCall:
    """The arrays of a call of `rank`; raises what they are refused for.

    Raises:
        ValueError: they are on several GPUs.
    """

    def __init__(self, call: Call, rank: int) -> None:
        self._call, self._rank = call, rank
        self.library: DeviceLibrary | None = None
        """The library of the arrays on a GPU; None: there are none."""
        self.device: int | None = None
        """The number of the GPU that they are on."""
        self.is_ready = True
        """Whether all of it is contiguous memory of the GPU already."""
        self.has_host_arrays = False
        """Whether some are in CPU memory, which the GPU may use until it has ended."""
        self.described = call.mapped(rank, self._describe)
        """The call with the memory of each array, wherever it is."""
        self.kept: list[Any] = []
        """What lives until the GPU has done the call."""
        self._after: list[Callable[[], None]] = []
        self._ends: list[Callable[[], None]] = []

    def move(self, device: int, stream: Any, is_current: bool) -> Call:
        """Return the call on contiguous memory of the GPU, which `stream` fills.

        `is_current` says whether it is the current stream of this thread.
        """
        self._device, self._stream, self._is_current = device, stream, is_current
        if self.is_ready:
            self.kept.append(self._call)
            return self.described
        with self._in_stream():
            return self._call.mapped(self._rank, self._move)

    def enqueue_copies_back(self) -> None:
        """Copy results to where they belong, in the stream."""
        # Not kept: these name this object, and would keep it with its arrays.
        after, self._after = self._after, []
        if after:
            with self._in_stream():
                for copy_back in after:
                    copy_back()

    def end(self) -> None:
        """Do what is left once the stream has come here."""
        for end in self._ends:
            end()

    def copy_of(self, row: Buffer) -> Buffer:
        """Return a copy of contiguous memory of the GPU, made in the stream."""
        copy = self._scratch(row)
        _driver(
            "cuMemcpyDtoDAsync", copy.address, row.address, row.num_bytes, self._handle
        )
        return copy

    @property
    def _handle(self) -> int:
        return int(self._stream.handle)

    def _scratch(self, like: Buffer, num_rows: int | None = None) -> Buffer:
        """Return memory of the GPU for as many elements, freed in stream order."""
        from cuda.core import Device

        device = Device(self._device)
        device.set_current()  # a thread's first call wants it, though it is
        memory = device.allocate(max(like.num_bytes, 1), stream=self._stream)
        self.kept.append(memory)
        shape = (
            (like.count,) if num_rows is None else (num_rows, like.count // num_rows)
        )
        return Buffer(int(memory.handle), like.dtype, shape, None, memory)

    def _in_stream(self) -> Any:
        if self.library is None or self._is_current:
            return nullcontext()
        return self.library.on_stream(self._handle, self._device)

    def _describe(self, array: Any, is_read: bool, is_written: bool) -> Buffer:
        its = library_of(array)
        if its.device_of(array) == "cpu":
            self.is_ready = False
            self.has_host_arrays = True
            return as_buffer(array, writable=is_written)
        library = as_device_library(its)
        number = library.device_number(array)
        if self.device not in (None, number):
            raise ValueError(
                f"{self._call.op}: arrays are on GPU {self.device} and on GPU "
                f"{number}; pass arrays of one GPU"
            )
        self.library, self.device = library, number
        memory = library.device_memory(array, is_written)
        self.is_ready &= memory.is_contiguous
        return memory

    def _move(self, array: Any, is_read: bool, is_written: bool) -> Buffer:
        if device_of(array) == "cpu":
            return self._move_host(array, is_written)
        library = as_device_library(library_of(array))
        memory = library.device_memory(array, is_written)
        if memory.is_contiguous:
            self.kept.append(array)
            return memory
        copy = library.contiguous(array)
        self.kept.append(copy)
        if is_written:
            self._after.append(lambda: library.assign(array, copy))
        return library.device_memory(copy, is_written)

    def _move_host(self, array: Any, is_written: bool) -> Buffer:
        given = [as_buffer(array, writable=is_written)]
        row = row_to_read(given)
        there = self._scratch(row, _num_rows(array))
        size = there.num_bytes
        _driver("cuMemcpyHtoDAsync", there.address, row.address, size, self._handle)
        self.kept.append(row)
        if is_written:
            target, end = row_to_write(given)
            self._after.append(
                lambda: _driver(
                    "cuMemcpyDtoHAsync",
                    *(target.address, there.address, size, self._handle),
                )
            )
            self._ends.append(end)
        return there


def with_an_array(call: Call) -> Call:
    """Return the call; in the place of a barrier, which NCCL lacks, a reduction."""
    if call.op != "barrier":
        return call
    nothing = np.zeros(1, np.uint8)
    return Call("all_reduce", nothing, nothing, call.timeout, call.async_op)


def _num_rows(array: Any) -> int | None:
    """Return the length of the first dimension, by which splits count; None for 0."""
    shape = getattr(array, "shape", None) or (0,)
    return int(shape[0]) or None


def _driver(function: str, *arguments: Any) -> None:
    """Call a function of CUDA's driver.

    Raises:
        RuntimeError: it failed.
    """
    from cuda.bindings import driver

    code = getattr(driver, function)(*arguments)[0]
    if int(code):
        _, text = driver.cuGetErrorString(code)
        raise RuntimeError(f"{function}: {text.decode()} (error {int(code)})")
