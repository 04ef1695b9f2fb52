"""The memory of arrays as MPI takes it: in a row, or a copy that is; and its types.

MPI could describe strided memory by derived types; packing it is faster, and the core
does that already for every layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from allhands import _C
from allhands._C import Buffer, DType

__all__ = [
    *("as_row", "datatype", "message", "overlaps", "pack", "scratch", "slices"),
    *("unpack", "values"),
]

# By dtype: MPI's name, NumPy's. 16-bit floats are only moved by MPI.
_TYPES = {
    DType.Bool: ("C_BOOL", "?"),
    DType.Int8: ("INT8_T", "i1"),
    DType.Int16: ("INT16_T", "i2"),
    DType.Int32: ("INT32_T", "i4"),
    DType.Int64: ("INT64_T", "i8"),
    DType.UInt8: ("UINT8_T", "u1"),
    DType.UInt16: ("UINT16_T", "u2"),
    DType.UInt32: ("UINT32_T", "u4"),
    DType.UInt64: ("UINT64_T", "u8"),
    DType.Float16: ("UINT16_T", "u2"),
    DType.BFloat16: ("UINT16_T", "u2"),
    DType.Float32: ("FLOAT", "f4"),
    DType.Float64: ("DOUBLE", "f8"),
    DType.Complex64: ("C_FLOAT_COMPLEX", "c8"),
    DType.Complex128: ("C_DOUBLE_COMPLEX", "c16"),
}


def datatype(mpi: Any, dtype: DType) -> Any:
    """MPI's type of such elements."""
    return getattr(mpi, _TYPES[dtype][0])


def message(mpi: Any, buffer: Buffer) -> list[Any]:
    """A contiguous buffer as mpi4py takes it."""
    memory = mpi.buffer.fromaddress(buffer.address, buffer.num_bytes)
    return [memory, buffer.count, datatype(mpi, buffer.dtype)]


def values(mpi: Any, buffer: Buffer) -> np.ndarray[Any, Any]:
    """The elements of a contiguous buffer, no 16-bit floats, in place."""
    memory = mpi.buffer.fromaddress(buffer.address, buffer.num_bytes)
    return np.frombuffer(memory, _TYPES[buffer.dtype][1])


def scratch(dtype: DType, count: int) -> Buffer:
    """Memory for `count` elements, which lives as long as the buffer."""
    memory = np.empty(count, _TYPES[dtype][1])
    return Buffer(memory.ctypes.data, dtype, (count,), None, memory)


def slices(whole: Buffer, counts: Sequence[int]) -> list[Buffer]:
    """A contiguous buffer cut in parts of these sizes."""
    itemsize = np.dtype(_TYPES[whole.dtype][1]).itemsize
    parts, address = [], whole.address
    for count in counts:
        parts.append(Buffer(address, whole.dtype, (count,), None, whole))
        address += count * itemsize
    return parts


def overlaps(one: Buffer, other: Buffer) -> bool:
    """Whether two contiguous buffers share memory."""
    return (
        one.address < other.address + other.num_bytes
        and other.address < one.address + one.num_bytes
    )


def as_row(buffers: Sequence[Buffer]) -> Buffer | None:
    """Buffers of one dtype as one, where they are one in memory; else None."""
    first, *_ = buffers
    end = None
    for buffer in buffers:
        if not buffer.is_contiguous or (end is not None and buffer.address != end):
            return None
        end = buffer.address + buffer.num_bytes
    count = sum(buffer.count for buffer in buffers)
    return Buffer(first.address, first.dtype, (count,), None, list(buffers))


def pack(buffers: Sequence[Buffer]) -> Buffer:
    """A copy of them in a row."""
    counts = [buffer.count for buffer in buffers]
    row = scratch(buffers[0].dtype, sum(counts))
    for buffer, part in zip(buffers, slices(row, counts), strict=True):
        _C.copy_buffer(buffer, part)
    return row


def unpack(row: Buffer, buffers: Sequence[Buffer]) -> None:
    """The way back."""
    counts = [buffer.count for buffer in buffers]
    for buffer, part in zip(buffers, slices(row, counts), strict=True):
        _C.copy_buffer(part, buffer)
