"""The NumPy objects that an unpickler of untrusted data may make.

They are arrays, dtypes and scalars. NumPy trusts the size and flags that a pickle gives
for a dtype, and derives from them where memory holds references to objects. Therefore
this module makes a dtype's state anew from its description, allows references only in
arrays of objects, and lets a pickle set the state of an array only once, before
anything else can refer to its memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["loadable", "set_state"]


def loadable(name: str) -> Any:
    """See `allhands.arrays.loading.Loading`."""
    return _LOADABLE[name.replace("numpy.core.", "numpy._core.")]  # before NumPy 2


def set_state(made: Any, state: Any) -> bool:
    """See `allhands.arrays.loading.Loading`."""
    if isinstance(made, np.dtype):
        _set_dtype(made, state)
    elif type(made) is np.ndarray:
        _set_array(made, state)
    else:
        return False
    return True


def _ndarray(*_: Any) -> Any:
    raise ValueError("numpy.ndarray is called; only an array's class may be named")


def _reconstruct(kind: Any, shape: Any, dtype: Any) -> Any:
    """Return an empty array, whose state is set later."""
    if kind is not _ndarray:
        raise ValueError(f"an array of {kind!r}; only numpy.ndarray can be loaded")
    return np.empty(0, np.int8)


def _frombuffer(
    memory: Any, dtype: Any, shape: Any, order: Any, axes: Any = None
) -> Any:
    """Return an array on `memory`."""
    array = np.frombuffer(memory, dtype=np.dtype(dtype))
    if order == "K" and axes is not None:
        return array.reshape(shape, order="C").transpose(axes)
    return array.reshape(shape, order=order)


def _scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, np.dtype) or dtype.hasobject or type(data) is not bytes:
        raise ValueError(f"a scalar of {dtype!r} out of {type(data).__name__}")
    if len(data) != dtype.itemsize:
        raise ValueError(f"a scalar of {dtype!r} out of {len(data)} bytes")
    return np.ndarray((), dtype, data)[()]


def _set_array(array: Any, state: Any) -> None:
    version, shape, dtype, is_fortran, data = state
    if array.size:
        raise ValueError(f"an array of shape {array.shape} is to become another")
    kinds = (list,) if dtype.hasobject else (bytes, bytearray)
    size = math.prod(shape) if dtype.hasobject else math.prod(shape) * dtype.itemsize
    if version != 1 or not isinstance(data, kinds) or len(data) != size:
        raise ValueError(
            f"an array of shape {shape} and {dtype!r} out of {len(data)} elements of "
            f"{type(data).__name__}"
        )
    array.__setstate__((1, shape, dtype, bool(is_fortran), data))


def _set_dtype(dtype: Any, state: Any) -> None:
    """Set the state of `dtype` to what NumPy makes of the same description."""
    meant = _dtype_meant(dtype, *state)
    if type(meant) is not type(dtype) or meant.itemsize != dtype.itemsize:
        raise ValueError(f"{dtype!r} is to become {meant!r}, which is another dtype")
    if dtype.kind == "V" and meant.hasobject:  # there may be an array of it
        raise ValueError(f"{meant!r} has objects in parts of its elements")
    if meant == dtype:
        return
    if dtype is np.dtype(dtype.str):
        raise ValueError(f"{dtype!r}, which the whole program uses, is to be {meant!r}")
    dtype.__setstate__(meant.__reduce__()[2])


def _dtype_meant(
    dtype: Any,
    version: Any,
    order: Any,
    subarray: Any,
    names: Any,
    fields: Any,
    size: Any,
    alignment: Any,
    flags: Any,
    unit: Any = None,
) -> Any:
    if names is not None:
        parts = [fields[name] for name in names]  # dtype, offset, and a title if any
        description: Any = {
            "names": list(names),
            "formats": [part[0] for part in parts],
            "offsets": [part[1] for part in parts],
            "itemsize": dtype.itemsize,
            "aligned": bool(flags & _ALIGNED),
        }
        if any(len(part) > 2 for part in parts):
            description["titles"] = [(*part, None)[2] for part in parts]
        return np.dtype(description)
    if subarray is not None:
        return np.dtype(subarray)
    if dtype.kind in "mM" and unit is not None:
        name, number, *_ = unit[1]
        code = "" if name == b"generic" else f"[{int(number)}{name.decode()}]"
        return np.dtype(f"{dtype.kind}8{code}").newbyteorder(order)
    return np.dtype(dtype.str).newbyteorder(order)


_ALIGNED = 0x80  # NPY_ALIGNED_STRUCT

_LOADABLE: dict[str, type | Callable[..., Any]] = {
    "numpy.ndarray": _ndarray,
    "numpy.dtype": np.dtype,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy._core.numeric._frombuffer": _frombuffer,
}
_LOADABLE |= {
    f"numpy.{kind.__name__}": kind
    for kind in {*np.sctypeDict.values()} - {np.object_, np.void}
}
