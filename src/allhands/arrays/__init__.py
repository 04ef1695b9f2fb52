"""Arrays of any library as memory; only this package knows array libraries.

Each library has one module here, with the functions of `Library`, and one row in
`MODULES`, keyed by the package that its classes come from. The module is loaded when
the first array of the library arrives. The library itself is never imported: a caller
that passes an array has imported it already. A table keyed by exact type makes the
intake of an array one dictionary look-up. Entries are only added, so any thread may use
the table.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from allhands._C import Buffer
from allhands.arrays.devices import DeviceArrayError, as_device_library
from allhands.arrays.sparse import SparseArrayError

__all__ = [
    "MODULES",
    "Array",
    "Library",
    "SparseArrayError",
    "as_buffer",
    "describe",
    "device_of",
    "library_of",
    "library_of_dtype",
    "library_of_type",
    "load",
    "on_host",
    "reducers",
]

Array: TypeAlias = Any
"""An array of a library in the table below: `numpy.ndarray`, `torch.Tensor`, or an
object with the buffer protocol (`bytearray`, `mmap`, `memoryview`, ...)."""


class Library(Protocol):
    """What a module of this folder must have."""

    reducers: Mapping[type, Callable[[Any], Any]]
    """See `allhands.arrays.reducers`."""

    def accepts(self, kind: type) -> bool:
        """Whether `kind`, a class of the library or derived from one, is an array."""

    def as_buffer(self, array: Array, writable: bool) -> Buffer:
        """See `allhands.arrays.as_buffer`."""

    def device_of(self, array: Array) -> str:
        """See `allhands.arrays.device_of`."""

    def from_numpy(self, array: np.ndarray[Any, Any]) -> Array:
        """Return `array` as an array of the library, without a copy."""

    def from_bytes(
        self, memory: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any
    ) -> Array:
        """Return all of `memory` as an array of the library, without a copy."""

    def new_future(self) -> Any:
        """Return a future of the library, with set_result and set_exception."""


MODULES: dict[str, str] = {
    "numpy": "allhands.arrays._numpy",
    "torch": "allhands.arrays._torch",
    "cupy": "allhands.arrays._cupy",
    # Every class derives from `object` of builtins, so this row is the fallback.
    "builtins": "allhands.arrays._exported",
}
# A program's own file or folder may have the name of a library, but lacks its arrays.
_CLASSES = {"torch": "Tensor", "cupy": "ndarray"}
_libraries: dict[type, Library] = {}


def as_buffer(array: Array, *, writable: bool, name: str = "tensor") -> Buffer:
    """Return the memory of `array`, without a copy; the buffer keeps `array` alive.

    A `Buffer` is returned as it is: a backend that works on devices passes memory that
    is described already, for the core to check. `name` is the name of the public
    function's parameter, for error messages.

    Raises:
        TypeError: `array` is not an array, or its elements are not numbers.
        ValueError: `writable`, but `array` is read-only or its elements overlap.
        DeviceArrayError: the memory is that of a device; see `arrays.devices`.
        RuntimeError: the memory cannot be read here for another reason.
        SparseArrayError: `array` is sparse: it consists of several parts.
    """
    if isinstance(array, Buffer):
        return array
    library = _libraries.get(type(array)) or library_of(array, name)
    return library.as_buffer(array, writable)


def describe(array: Array, *, writable: bool, name: str = "tensor") -> Buffer:
    """Return what `as_buffer` returns, also for an array on a device.

    The address may be the device's, so only those who know may read the memory.
    """
    try:
        return as_buffer(array, writable=writable, name=name)
    except DeviceArrayError:
        return as_device_library(library_of(array)).device_memory(array, writable)


def on_host(array: Array) -> Array:
    """Return a copy in CPU memory of an array on a device."""
    library = as_device_library(library_of(array))
    copy = library.empty_on_host(array)
    library.assign(copy, array)
    library.synchronize(library.device_number(array))
    return copy


def device_of(array: Array) -> str:
    """Return the type of the device that holds `array`: "cpu", "cuda", ...

    Raises:
        TypeError: `array` is not an array.
    """
    return library_of(array).device_of(array)


def library_of(array: Array, name: str = "tensor") -> Library:
    """Return the library that `array` belongs to.

    Raises:
        TypeError: `array` belongs to no known library.
    """
    return library_of_type(type(array), name)


def library_of_type(kind: type, name: str = "tensor") -> Library:
    """Return the library that arrays of this type belong to; like `library_of`."""
    if kind not in _libraries:
        _libraries[kind] = _find(kind, name)
    return _libraries[kind]


def reducers() -> dict[type, Callable[[Any], Any]]:
    """Return reduce functions, by class, with which pickle does not copy memory.

    They are for `Pickler.dispatch_table` and pass memory on as a `PickleBuffer`. The
    result covers the libraries that the program has imported.
    """
    found: dict[type, Callable[[Any], Any]] = {}
    for name, module in MODULES.items():
        if _is_imported(name):
            found |= _load(module).reducers
    return found


def load() -> None:
    """Load the modules of all libraries that the program has imported.

    Loading them with the first array would fail if the program had no free file
    descriptor by then.
    """
    reducers()
    importlib.import_module("allhands.arrays.future")


def library_of_dtype(dtype: Any) -> Library:
    """Return the library that `dtype` belongs to; NumPy if it is unknown."""
    root = _root_of(type(dtype))
    return _load(MODULES[root if _is_imported(root) else "numpy"])


def _find(kind: type, name: str) -> Library:
    for base in kind.__mro__:
        root = _root_of(base)
        if root == "builtins" or _is_imported(root):
            library = _load(MODULES[root])
            if library.accepts(kind):
                return library
            break  # the fallback would accept a MaskedArray and lose its mask
    is_plain = issubclass(kind, (list, tuple, Number))
    remedy = " numpy.array(...) makes an array of it." if is_plain else ""
    raise TypeError(
        f"Invalid function argument. Expected parameter `{name}` of an array type "
        f"(numpy.ndarray, torch.Tensor or an object with the buffer protocol), but got "
        f"{kind} instead.{remedy}"
    )


def _root_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _is_imported(root: str) -> bool:
    """Return whether the program has imported the array library `root`."""
    module = sys.modules.get(root)  # None: nothing, or a blocked import
    return root in MODULES and hasattr(module, _CLASSES.get(root, "__file__"))


def _load(module: str) -> Library:
    return cast(Library, importlib.import_module(module))
