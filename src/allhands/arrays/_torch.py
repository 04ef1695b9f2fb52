"""torch tensors.

This module is loaded with the first tensor, or with the first received object that
holds one; then it imports torch if the program has not done so. From then on the core
reads ordinary tensors itself, if this torch supports it. This module handles the other
tensors, and refuses with a reason those that cannot be communicated.

A tensor counts as plain memory: whether it requires grad makes no difference, and
autograd does not see what an operation writes, as in torch.distributed.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from typing import Any, NoReturn

from allhands._C import Buffer, DType, register_tensors
from allhands.arrays._layout import may_overlap
from allhands.arrays._torch_cuda import (
    assign,
    contiguous,
    current_stream,
    device_number,
    empty_on_host,
    on_stream,
    synchronize,
)
from allhands.arrays._torch_handle import storage_queries
from allhands.arrays._torch_sparse import assign_parts, parts_of
from allhands.arrays.devices import DeviceArrayError
from allhands.arrays.sparse import SparseArrayError
from allhands.errors import UnsupportedDTypeError

__all__ = [
    "RESTORERS",
    "accepts",
    "as_buffer",
    "assign",
    "assign_parts",
    "contiguous",
    "current_stream",
    "device_memory",
    "device_number",
    "device_of",
    "empty_on_host",
    "from_bytes",
    "from_numpy",
    "new_future",
    "on_stream",
    "parts_of",
    "reducers",
    "synchronize",
]

_torch: Any = importlib.import_module("torch")
_STRIDED = _torch.strided
_DTYPES: dict[Any, DType] = {
    _torch.bool: DType.Bool,
    _torch.int8: DType.Int8,
    _torch.int16: DType.Int16,
    _torch.int32: DType.Int32,
    _torch.int64: DType.Int64,
    _torch.uint8: DType.UInt8,
    _torch.float16: DType.Float16,
    _torch.bfloat16: DType.BFloat16,
    _torch.float32: DType.Float32,
    _torch.float64: DType.Float64,
    _torch.complex64: DType.Complex64,
    _torch.complex128: DType.Complex128,
}
for _name, _dtype in (
    ("uint16", DType.UInt16),
    ("uint32", DType.UInt32),
    ("uint64", DType.UInt64),
    ("float4_e2m1fn_x2", DType.Float4_E2M1Fn_X2),
    ("float8_e4m3fn", DType.Float8_E4M3Fn),
    ("float8_e4m3fnuz", DType.Float8_E4M3FnUz),
    ("float8_e5m2", DType.Float8_E5M2),
    ("float8_e5m2fnuz", DType.Float8_E5M2FnUz),
    ("float8_e8m0fnu", DType.Float8_E8M0Fnu),
):
    if hasattr(_torch, _name):  # older torches lack some
        _DTYPES[getattr(_torch, _name)] = _dtype

_queries = storage_queries()
for _kind in (_torch.Tensor, _torch.nn.Parameter):
    _api = getattr(_kind, "__dlpack_c_exchange_api__", None)
    if _api is not None and _queries is not None:
        register_tensors(_kind, _api, _torch.Tensor.is_neg, *_queries)


def accepts(kind: type) -> bool:
    """See `allhands.arrays.Library`."""
    return issubclass(kind, _torch.Tensor)


def as_buffer(array: Any, writable: bool) -> Buffer:
    """See `allhands.arrays.as_buffer`."""
    if not array.is_cpu:
        _refuse_device(array)
    return _describe(array, writable)


def device_memory(array: Any, writable: bool) -> Buffer:
    """See `DeviceLibrary.device_memory`."""
    return _describe(array, writable)


def _describe(array: Any, writable: bool) -> Buffer:
    """Return the memory of a tensor, wherever it is."""
    if array.layout is not _STRIDED or array.is_nested:
        _refuse_memory(array)
    dtype = _DTYPES.get(array.dtype)
    if dtype is None:
        raise UnsupportedDTypeError(
            f"tensor of dtype {array.dtype}: only bool, integers, float16/32/64, "
            f"bfloat16, 8-bit floats and complex64/128 can be communicated; convert it "
            f"with to()"
        )
    if array.is_conj() or array.is_neg():
        array = _materialise(array, writable)
    address = array.data_ptr()
    is_contiguous = array.is_contiguous()
    if array.numel():
        _check_storage(array, is_contiguous)
        if not address:
            _refuse_memory(array)
    if is_contiguous:
        return Buffer(address, dtype, array.shape, None, array)
    itemsize = array.element_size()
    strides = tuple(stride * itemsize for stride in array.stride())
    if writable and may_overlap(array.shape, strides, itemsize):
        raise ValueError(
            f"tensor of shape {tuple(array.shape)} and strides {array.stride()} has "
            f"elements that overlap in memory, but the operation writes to it: pass "
            f"a clone()"
        )
    return Buffer(address, dtype, array.shape, strides, array)


def device_of(array: Any) -> str:
    """See `allhands.arrays.device_of`."""
    return str(array.device.type)


def from_numpy(array: Any) -> Any:
    """See `allhands.arrays.Library`."""
    return _torch.from_numpy(array)


def from_bytes(memory: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """See `allhands.arrays.Library`."""
    if not memory.size:  # torch cannot view an empty array as another dtype
        return _torch.empty(shape, dtype=dtype)
    return _torch.from_numpy(memory).view(dtype).view(shape)


class _Future(_torch.futures.Future):  # type: ignore[misc]
    """torch's, but that each wait raises a copy of the exception.

    torch raises the very one, so it has the frames of who waited, and these have the
    future: through C++, where no garbage collector sees that they hold each other.
    """

    def set_exception(self, result: Any) -> None:
        """See `torch.futures.Future.set_exception`."""

        def raise_copy(error: BaseException) -> NoReturn:
            kind = type(error)  # whose constructor may want other arguments
            again = kind.__new__(kind, *error.args)
            again.__dict__.update(vars(error))
            again.__cause__ = error.__cause__
            raise again

        self._set_unwrap_func(raise_copy)
        self.set_result(result)


def new_future() -> Any:
    """See `allhands.arrays.Library`."""
    return _Future()


def _reduce_typed(storage: Any) -> Any:
    """Reduce a typed storage, to which tensors refer, to untyped storage and dtype."""
    untyped = storage._untyped_storage  # its other attributes warn
    if untyped.device.type != "cpu":
        return storage.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    return _typed_storage, (untyped, storage.dtype)


def _reduce_untyped(storage: Any) -> Any:
    """Reduce a CPU storage to a buffer of its memory, which pickle need not copy."""
    if storage.device.type != "cpu":
        return storage.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    memory = _torch.empty(0, dtype=_torch.uint8).set_(storage)
    return _untyped_storage, (pickle.PickleBuffer(memory.numpy()),)


def _reduce_tensor(tensor: Any) -> Any:
    """Reduce a tensor as torch does, but so that one of any dtype can be read again.

    For a dtype that has no typed storage (8-bit floats, unsigned integers) torch passes
    the untyped one, and yet reads a typed one, as `torch.load` gives it.
    """
    restore, arguments, *state = tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    storage, *rest = arguments or [None]
    if restore is _restore_untyped and isinstance(storage, _torch.UntypedStorage):
        arguments = (_typed_storage(storage, _torch.uint8), *rest)
    return restore, arguments, *state


def _typed_storage(untyped: Any, dtype: Any) -> Any:
    return _torch.storage.TypedStorage(
        wrap_storage=untyped, dtype=dtype, _internal=True
    )


def _untyped_storage(memory: Any) -> Any:
    if not len(memory):
        return _torch.UntypedStorage(0)
    return _torch.frombuffer(memory, dtype=_torch.uint8).untyped_storage()


RESTORERS = (_typed_storage, _untyped_storage)
"""The functions that these pickles name beside torch's own."""

_restore_untyped = getattr(_torch._utils, "_rebuild_tensor_v3", None)

# torch itself pickles tensors with all their attributes: views of one storage, grad,
# hooks, classes. It would copy their storages, so these are reduced here.
reducers: dict[type, Callable[[Any], Any]] = {
    _torch.Tensor: _reduce_tensor,
    _torch.UntypedStorage: _reduce_untyped,
    _torch.storage.TypedStorage: _reduce_typed,
}


def _materialise(array: Any, writable: bool) -> Any:
    """Return a copy of a view with its lazy conjugation or negation carried out."""
    if writable:
        raise ValueError(
            "tensor is a lazily conjugated or negated view, but the operation writes "
            "to it: pass tensor.resolve_conj().resolve_neg()"
        )
    return array.resolve_conj().resolve_neg()


def _check_storage(array: Any, is_contiguous: bool) -> None:
    """Refuse a tensor whose storage has been resized to less than it needs."""
    length = array.numel()
    if not is_contiguous:
        steps = zip(array.shape, array.stride(), strict=True)
        length = 1 + sum((size - 1) * stride for size, stride in steps)
    needed = (array.storage_offset() + length) * array.element_size()
    held = array.untyped_storage().nbytes()
    if needed > held:
        raise ValueError(
            f"tensor of shape {tuple(array.shape)} and dtype {array.dtype} is longer "
            f"than its storage, which has {held} of {needed} bytes: give it memory "
            f"again with tensor.untyped_storage().resize_({needed})"
        )


def _refuse_device(array: Any) -> NoReturn:
    is_memory = array.layout is _STRIDED and not array.is_nested
    kind = DeviceArrayError if array.is_cuda and is_memory else RuntimeError
    raise kind(
        f"No backend type associated with device type {array.device.type}: the tensor "
        f"is on {array.device}, and this call takes arrays in CPU memory; pass "
        f"tensor.cpu()"
    )


def _refuse_memory(array: Any) -> NoReturn:
    kind = "nested" if array.is_nested else str(array.layout).removeprefix("torch.")
    if array.layout is _STRIDED and not array.is_nested:
        raise RuntimeError(f"tensor of {type(array)} has no memory of its own")
    if array.layout is _torch.sparse_coo:
        raise SparseArrayError(
            f"tensor with layout {kind}: only all_reduce takes sparse tensors; pass "
            f"its parts, or tensor.to_dense()"
        )
    other = "its parts" if array.is_nested else "tensor.to_sparse_coo() to all_reduce"
    raise RuntimeError(
        f"tensor with layout {kind}: only dense (strided) tensors can be communicated; "
        f"pass {other}, or tensor.to_dense()"
    )
