"""Objects that export their memory by the buffer protocol.

These are bytes, bytearray, memoryview, mmap, array.array, ctypes arrays and the like.
Their elements are numbers of the format that they declare; single characters (`c`) are
bytes. An object stays exported while an operation uses it: a bytearray or mmap cannot
be resized or closed meanwhile. Outputs that the package makes for them are NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from allhands._C import Buffer
from allhands.arrays import _numpy
from allhands.arrays._numpy import from_bytes, from_numpy, new_future, reducers

__all__ = [
    "accepts",
    "as_buffer",
    "device_of",
    "from_bytes",
    "from_numpy",
    "new_future",
    "reducers",
]

# The format codes of `struct`; Zf and Zd are NumPy's complex numbers.
_FORMATS = {*"?bBhHiIlLqQefdc", "Zf", "Zd"}


def accepts(kind: type) -> bool:
    """See `allhands.arrays.Library`."""
    return Buffer.is_exported_by(kind)


def as_buffer(array: Any, writable: bool) -> Buffer:
    """See `allhands.arrays.as_buffer`."""
    view = memoryview(array)
    if writable and view.readonly:
        raise ValueError(
            f"{_name(array)} is read-only, but the operation writes to it: pass a "
            f"bytearray, or another object that can be written to"
        )
    if view.format.lstrip("@=<>!") not in _FORMATS:
        raise _refused(array, view)
    numbers = np.asarray(view)
    if numbers.dtype == "S1":
        numbers = numbers.view(np.uint8)
    if not numbers.dtype.isnative:
        raise _refused(array, view)
    return _numpy.as_buffer(numbers, writable)


def device_of(array: Any) -> str:
    """See `allhands.arrays.device_of`."""
    return "cpu"


def _refused(array: Any, view: memoryview) -> TypeError:
    return TypeError(
        f"{_name(array)} of format {view.format!r}: only bool, integers, "
        f"float16/32/64, complex64/128 and single characters in native byte order can "
        f"be communicated; pass memoryview(...).cast('B') for its bytes"
    )


def _name(array: Any) -> str:
    kind = type(array)
    is_builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
