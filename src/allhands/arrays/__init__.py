"""Arrays of any library, seen as memory: the only code that knows array libraries.

A library is one module here with the functions of `Library` and one row of `MODULES`,
by the package that its classes come from.
The module is loaded when the first array of that library comes; a library itself is
never imported, since whoever hands over an array has it already. The table keyed by
exact type makes the intake of an array one dictionary look-up; it only ever grows, so
any thread may use it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from allhands._C import Buffer
from allhands.arrays.sparse import SparseArrayError

__all__ = [
    "MODULES",
    "Array",
    "Library",
    "SparseArrayError",
    "as_buffer",
    "device_of",
    "library_of",
    "library_of_dtype",
    "load",
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
        """`array` as one of the library's own, without a copy."""

    def from_bytes(
        self, memory: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any
    ) -> Array:
        """`memory`, all of it, as an array of the library's own, without a copy."""

    def new_future(self) -> Any:
        """A future of the library's own kind: set_result, set_exception."""


MODULES: dict[str, str] = {
    "numpy": "allhands.arrays._numpy",
    "torch": "allhands.arrays._torch",
    # Every class has a base from there; so this is asked where no library is known.
    "builtins": "allhands.arrays._exported",
}
_libraries: dict[type, Library] = {}


def as_buffer(array: Array, *, writable: bool, name: str = "tensor") -> Buffer:
    """The memory of `array`, without a copy; the buffer keeps `array` alive.

    `name` is the parameter that the caller's caller passed, for messages.

    Raises:
        TypeError: `array` is no array, or its elements are no numbers.
        ValueError: it is to be written to but read-only, or its elements overlap.
        RuntimeError: its memory cannot be read here (on a device, ...).
        SparseArrayError: it consists of parts.
    """
    library = _libraries.get(type(array)) or library_of(array, name)
    return library.as_buffer(array, writable)


def device_of(array: Array) -> str:
    """The type of device whose memory holds `array`: "cpu", "cuda", ...

    Raises:
        TypeError: `array` is no array.
    """
    return library_of(array).device_of(array)


def library_of(array: Array, name: str = "tensor") -> Library:
    """The library that `array` belongs to.

    Raises:
        TypeError: to none that is known here.
    """
    kind = type(array)
    if kind not in _libraries:
        _libraries[kind] = _find(kind, name)
    return _libraries[kind]


def reducers() -> dict[type, Callable[[Any], Any]]:
    """How pickle takes apart objects of which it would copy the memory, by class.

    For `Pickler.dispatch_table`: with these, memory goes as a `PickleBuffer`. Of the
    libraries that the program has imported.
    """
    found: dict[type, Callable[[Any], Any]] = {}
    for name, module in MODULES.items():
        if sys.modules.get(name) is not None:  # None: it must not be imported
            found |= _load(module).reducers
    return found


def load() -> None:
    """Load what the arrays of this program need later.

    Of the libraries that it has imported. Left to the first array, it would fail where
    the program has no file descriptor free.
    """
    reducers()
    importlib.import_module("allhands.arrays.future")


def library_of_dtype(dtype: Any) -> Library:
    """The library whose arrays have elements of `dtype`; NumPy if in doubt."""
    root = type(dtype).__module__.partition(".")[0]
    module = "numpy" if root == "builtins" else root
    return _load(MODULES.get(module, MODULES["numpy"]))


def _find(kind: type, name: str) -> Library:
    for base in kind.__mro__:
        module = MODULES.get(base.__module__.partition(".")[0])
        if module is not None:
            library = _load(module)
            if library.accepts(kind):
                return library
            break  # as memory a MaskedArray would lose its mask
    raise TypeError(
        f"Invalid function argument. Expected parameter `{name}` of an array type "
        f"(numpy.ndarray, torch.Tensor or an object with the buffer protocol), but got "
        f"{kind} instead."
    )


def _load(module: str) -> Library:
    return cast(Library, importlib.import_module(module))
