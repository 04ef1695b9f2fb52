"""CuPy arrays, which are in the memory of CUDA devices."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np

from allhands._C import Buffer, DType
from allhands.arrays._layout import may_overlap
from allhands.arrays.devices import DeviceArrayError
from allhands.errors import UnsupportedDTypeError

__all__ = [
    *("accepts", "as_buffer", "assign", "contiguous", "current_stream", "device_of"),
    *("device_memory", "device_number", "empty_on_host", "from_bytes", "from_numpy"),
    *("new_future", "on_stream", "reducers", "synchronize"),
]

_cupy: Any = importlib.import_module("cupy")
_DTYPES = {
    **{"bool": DType.Bool, "int8": DType.Int8, "int16": DType.Int16},
    **{"int32": DType.Int32, "int64": DType.Int64, "uint8": DType.UInt8},
    **{"uint16": DType.UInt16, "uint32": DType.UInt32, "uint64": DType.UInt64},
    **{"float16": DType.Float16, "bfloat16": DType.BFloat16},
    **{"float32": DType.Float32, "float64": DType.Float64},
    **{"complex64": DType.Complex64, "complex128": DType.Complex128},
}

reducers: dict[type, Callable[[Any], Any]] = {}  # pickle copies these arrays itself


def accepts(kind: type) -> bool:
    """See `allhands.arrays.Library`."""
    return issubclass(kind, _cupy.ndarray)


def as_buffer(array: Any, writable: bool) -> NoReturn:
    """See `allhands.arrays.as_buffer`."""
    raise DeviceArrayError(
        f"No backend type associated with device type cuda: the array is on GPU "
        f"{array.device.id}, and this call takes arrays in CPU memory; pass array.get()"
    )


def device_of(array: Any) -> str:
    """See `allhands.arrays.device_of`."""
    return "cuda"


def from_numpy(array: Any) -> Any:
    """See `allhands.arrays.Library`; CPU memory stays an array of NumPy."""
    return array


def from_bytes(memory: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """See `allhands.arrays.Library`; CPU memory stays an array of NumPy."""
    return memory.view(dtype).reshape(shape)


def new_future() -> Any:
    """See `allhands.arrays.Library`."""
    from allhands.arrays.future import Future

    return Future()


def device_memory(array: Any, writable: bool) -> Buffer:
    """See `DeviceLibrary.device_memory`."""
    dtype = _DTYPES.get(str(array.dtype))
    if dtype is None:
        raise UnsupportedDTypeError(
            f"array of dtype {array.dtype}: only bool, integers, float16/32/64, "
            f"bfloat16 and complex64/128 can be communicated; convert it with astype()"
        )
    if array.flags.c_contiguous:
        return Buffer(array.data.ptr, dtype, array.shape, None, array)
    if writable and may_overlap(array.shape, array.strides, array.itemsize):
        raise ValueError(
            f"array of shape {array.shape} and strides {array.strides} has elements "
            f"that overlap in memory, but the operation writes to it: pass a copy()"
        )
    return Buffer(array.data.ptr, dtype, array.shape, array.strides, array)


def device_number(array: Any) -> int:
    """See `DeviceLibrary.device_number`."""
    return int(array.device.id)


def contiguous(array: Any) -> Any:
    """See `DeviceLibrary.contiguous`."""
    with array.device:
        return _cupy.ascontiguousarray(array)


def assign(array: Any, source: Any) -> None:
    """See `DeviceLibrary.assign`."""
    with _holder(array, source).device:
        if isinstance(array, np.ndarray):
            source.get(out=array, blocking=False)
        elif isinstance(source, np.ndarray) and array.flags.c_contiguous:
            array.set(source)
        else:
            array[...] = _cupy.asarray(source)


def empty_on_host(array: Any) -> Any:
    """See `DeviceLibrary.empty_on_host`."""
    if not array.nbytes:  # no memory to lock, and NumPy refuses such a buffer
        return np.empty(array.shape, array.dtype)
    locked = _cupy.cuda.alloc_pinned_memory(array.nbytes)
    row = np.frombuffer(locked, array.dtype, array.size)
    return row.reshape(array.shape)


def current_stream(device: int) -> int:
    """See `DeviceLibrary.current_stream`."""
    with _cupy.cuda.Device(device):
        return int(_cupy.cuda.get_current_stream().ptr)


def on_stream(handle: int, device: int) -> AbstractContextManager[Any]:
    """See `DeviceLibrary.on_stream`."""
    stream: AbstractContextManager[Any]
    if hasattr(_cupy.cuda.Stream, "from_external"):  # since CuPy 14
        stream = _cupy.cuda.Stream.from_external(_Handle(handle))
    else:
        stream = _cupy.cuda.ExternalStream(handle, device)
    return stream


def synchronize(device: int) -> None:
    """See `DeviceLibrary.synchronize`."""
    with _cupy.cuda.Device(device):
        _cupy.cuda.get_current_stream().synchronize()


class _Handle:
    """A stream of somebody else, by CUDA's protocol for streams."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _holder(array: Any, source: Any) -> Any:
    """Return which of the two is on a device."""
    return source if isinstance(array, np.ndarray) else array
