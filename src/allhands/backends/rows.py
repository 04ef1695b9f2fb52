"""The memory of arrays in the form of other libraries: contiguous rows.

Arrays that are not contiguous are copied. MPI could describe strided memory by derived
types, but packing is faster, and the core already packs every layout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from allhands import _C
from allhands._C import Buffer, DType

__all__ = [
    *("as_row", "memory_of", "overlaps", "pack", "row_to_read", "row_to_write"),
    *("scratch", "slices", "unpack", "values"),
]

_TYPES = {
    DType.Bool: "?",
    DType.Int8: "i1",
    DType.Int16: "i2",
    DType.Int32: "i4",
    DType.Int64: "i8",
    DType.UInt8: "u1",
    DType.UInt16: "u2",
    DType.UInt32: "u4",
    DType.UInt64: "u8",
    DType.Float4_E2M1Fn_X2: "u1",  # NumPy lacks these; they are moved, not read
    DType.Float8_E4M3Fn: "u1",
    DType.Float8_E4M3FnUz: "u1",
    DType.Float8_E5M2: "u1",
    DType.Float8_E5M2FnUz: "u1",
    DType.Float8_E8M0Fnu: "u1",
    DType.Float16: "u2",  # NumPy has one of the two; nor are these read
    DType.BFloat16: "u2",
    DType.Float32: "f4",
    DType.Float64: "f8",
    DType.Complex64: "c8",
    DType.Complex128: "c16",
}


def memory_of(buffer: Buffer) -> np.ndarray[Any, Any]:
    """Return the bytes of a contiguous buffer, in place; the buffer must stay alive."""
    if not buffer.num_bytes:
        return np.empty(0, np.uint8)
    memory: Any = (ctypes.c_ubyte * buffer.num_bytes).from_address(buffer.address)
    row: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)
    return row


def values(buffer: Buffer) -> np.ndarray[Any, Any]:
    """Return the elements of a contiguous buffer, in place.

    Not for floats of 16 bits and less.
    """
    return memory_of(buffer).view(_TYPES[buffer.dtype])


def scratch(dtype: DType, count: int) -> Buffer:
    """Allocate memory for `count` elements; it lives as long as the buffer."""
    memory = np.empty(count, _TYPES[dtype])
    return Buffer(memory.ctypes.data, dtype, (count,), None, memory)


def slices(whole: Buffer, counts: Sequence[int]) -> list[Buffer]:
    """Return the parts of a contiguous buffer, with these sizes."""
    itemsize = np.dtype(_TYPES[whole.dtype]).itemsize
    parts, address = [], whole.address
    for count in counts:
        parts.append(Buffer(address, whole.dtype, (count,), None, whole))
        address += count * itemsize
    return parts


def overlaps(one: Buffer, other: Buffer) -> bool:
    """Return whether two contiguous buffers share memory."""
    return (
        one.address < other.address + other.num_bytes
        and other.address < one.address + one.num_bytes
    )


def as_row(buffers: Sequence[Buffer]) -> Buffer | None:
    """Return buffers of one dtype as one if they are adjacent in memory; else None."""
    first, *_ = buffers
    end = None
    for buffer in buffers:
        if not buffer.is_contiguous or (end is not None and buffer.address != end):
            return None
        end = buffer.address + buffer.num_bytes
    count = sum(buffer.count for buffer in buffers)
    return Buffer(first.address, first.dtype, (count,), None, list(buffers))


def pack(buffers: Sequence[Buffer]) -> Buffer:
    """Return a contiguous copy of the buffers."""
    counts = [buffer.count for buffer in buffers]
    row = scratch(buffers[0].dtype, sum(counts))
    for buffer, part in zip(buffers, slices(row, counts), strict=True):
        _C.copy_buffer(buffer, part)
    return row


def unpack(row: Buffer, buffers: Sequence[Buffer]) -> None:
    """Copy a contiguous row back to the buffers."""
    counts = [buffer.count for buffer in buffers]
    for buffer, part in zip(buffers, slices(row, counts), strict=True):
        _C.copy_buffer(part, buffer)


def row_to_read(buffers: Sequence[Buffer], written: Buffer | None = None) -> Buffer:
    """Return the buffers as a row that shares no memory with `written`."""
    row = as_row(buffers)
    if row is None or (written is not None and overlaps(row, written)):
        return pack(buffers)
    return row


def row_to_write(buffers: Sequence[Buffer]) -> tuple[Buffer, Callable[[], None]]:
    """Return a row to write to, and a function that copies it to `buffers`."""
    row = as_row(buffers)
    if row is not None:
        return row, _nothing
    count = sum(buffer.count for buffer in buffers)
    row = scratch(buffers[0].dtype, count)
    return row, lambda: unpack(row, buffers)


def _nothing() -> None:
    pass
