"""The memory of arrays in mpi4py's form, with MPI's types."""

from __future__ import annotations

from typing import Any

from allhands._C import Buffer, DType

__all__ = ["any_message", "message"]

# MPI only moves floats of 16 bits and less.
_TYPES = {
    DType.Bool: "C_BOOL",
    DType.Int8: "INT8_T",
    DType.Int16: "INT16_T",
    DType.Int32: "INT32_T",
    DType.Int64: "INT64_T",
    DType.UInt8: "UINT8_T",
    DType.UInt16: "UINT16_T",
    DType.UInt32: "UINT32_T",
    DType.UInt64: "UINT64_T",
    DType.Float4_E2M1Fn_X2: "UINT8_T",
    DType.Float8_E4M3Fn: "UINT8_T",
    DType.Float8_E4M3FnUz: "UINT8_T",
    DType.Float8_E5M2: "UINT8_T",
    DType.Float8_E5M2FnUz: "UINT8_T",
    DType.Float8_E8M0Fnu: "UINT8_T",
    DType.Float16: "UINT16_T",
    DType.BFloat16: "UINT16_T",
    DType.Float32: "FLOAT",
    DType.Float64: "DOUBLE",
    DType.Complex64: "C_FLOAT_COMPLEX",
    DType.Complex128: "C_DOUBLE_COMPLEX",
}


def message(mpi: Any, buffer: Buffer) -> list[Any]:
    """Return a contiguous buffer in mpi4py's form."""
    return [_memory(mpi, buffer), buffer.count, getattr(mpi, _TYPES[buffer.dtype])]


def any_message(mpi: Any, buffer: Buffer) -> list[Any]:
    """Return a buffer for a message that may not have a whole number of elements.

    MPICH ends the job if such a message meets a type of several bytes.
    """
    return [_memory(mpi, buffer), buffer.num_bytes, mpi.BYTE]


def _memory(mpi: Any, buffer: Buffer) -> Any:
    return mpi.buffer.fromaddress(buffer.address, buffer.num_bytes)
