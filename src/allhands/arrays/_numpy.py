"""NumPy arrays; also bfloat16 and the 8-bit floats of ml_dtypes.

The core reads ordinary arrays itself, see csrc/allhands/python/array.hpp. This module
handles strided arrays, subclasses and the dtypes of ml_dtypes, and refuses all other
arrays with a reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from allhands._C import Buffer, DType
from allhands.arrays._layout import may_overlap
from allhands.errors import UnsupportedDTypeError

__all__ = [
    "accepts",
    "as_buffer",
    "device_of",
    "from_bytes",
    "from_numpy",
    "new_future",
    "reducers",
]

_DTYPES = {
    "bfloat16": DType.BFloat16,
    "float8_e4m3fn": DType.Float8_E4M3Fn,
    "float8_e4m3fnuz": DType.Float8_E4M3FnUz,
    "float8_e5m2": DType.Float8_E5M2,
    "float8_e5m2fnuz": DType.Float8_E5M2FnUz,
    "float8_e8m0fnu": DType.Float8_E8M0Fnu,
}
"""The dtypes of another package, by name."""

reducers: dict[type, Callable[[Any], Any]] = {}  # NumPy arrays do it by themselves


def accepts(kind: type) -> bool:
    """See `allhands.arrays.Library`; a mask could not follow its data."""
    # Not imported: importing numpy.ma takes as long as the rest of a rank's start.
    masks = sys.modules.get("numpy.ma.core")
    return issubclass(kind, np.ndarray) and not (
        masks is not None and issubclass(kind, masks.MaskedArray)
    )


def as_buffer(array: np.ndarray[Any, Any], writable: bool) -> Buffer:
    """See `allhands.arrays.as_buffer`."""
    buffer = Buffer.from_numpy(array, writable) or _from_parts(array, writable)
    if writable and not buffer.is_contiguous:
        _refuse_overlap(array)
    return buffer


def device_of(array: np.ndarray[Any, Any]) -> str:
    """See `allhands.arrays.device_of`."""
    return "cpu"


def from_numpy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """See `allhands.arrays.Library`."""
    return array


def from_bytes(
    memory: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any
) -> np.ndarray[Any, Any]:
    """See `allhands.arrays.Library`."""
    if not memory.size:  # NumPy cannot view an empty array as one of objects
        return np.empty(shape, dtype)
    array: np.ndarray[Any, Any] = memory.view(dtype)
    return array.reshape(shape)


def new_future() -> Any:
    """See `allhands.arrays.Library`."""
    from allhands.arrays.future import Future  # here: slow to import

    return Future()


def _from_parts(array: np.ndarray[Any, Any], writable: bool) -> Buffer:
    address, is_read_only = array.__array_interface__["data"]
    if writable and is_read_only:
        raise ValueError(
            f"numpy array of shape {array.shape} is read-only, but the operation "
            f"writes to it: pass a copy"
        )
    dtype = _DTYPES.get(array.dtype.name)
    if dtype is None:
        raise UnsupportedDTypeError(
            f"numpy array of dtype {array.dtype}: only bool, integers, float16/32/64, "
            f"bfloat16, 8-bit floats that torch has, too, and complex64/128 in native "
            f"byte order can be communicated; convert it with astype()"
        )
    strides = None if array.flags.c_contiguous else array.strides
    return Buffer(address, dtype, array.shape, strides, array)


def _refuse_overlap(array: np.ndarray[Any, Any]) -> None:
    if may_overlap(array.shape, array.strides, array.itemsize):
        raise ValueError(
            f"numpy array of shape {array.shape} and strides {array.strides} has "
            f"elements that overlap in memory, but the operation writes to it: pass "
            f"a copy"
        )
