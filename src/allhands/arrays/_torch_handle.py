"""Addresses in torch's C interface, with which the core reads storages without Python.

torch documents the interface (torch/csrc/inductor/aoti_torch/c/shim.h) as stable. Its
functions take a handle: the address of the pointer to the C++ tensor. A Python tensor
contains that pointer. This module finds its offset by searching two tensors for the
value of the pointer, which torch gives.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, NamedTuple

__all__ = ["StorageQueries", "storage_queries"]


class StorageQueries(NamedTuple):
    """How the core asks for a tensor's storage; see `allhands._C.register_tensors`."""

    handle_at: int
    storage_bytes: int
    elements_before: int


def storage_queries() -> StorageQueries | None:
    """Return the addresses, or None if this torch lacks the interface."""
    torch: Any = importlib.import_module("torch")
    places = set.intersection(*(_places(torch.empty(n)) for n in (1, 2)))
    # The dynamic linker also searches libtorch, to which torch._C is linked.
    library = ctypes.CDLL(torch._C.__file__)
    try:
        functions = [
            ctypes.cast(function, ctypes.c_void_p).value or 0
            for function in (
                library.aoti_torch_get_storage_size,
                library.aoti_torch_get_storage_offset,
            )
        ]
    except AttributeError:  # an older torch
        return None
    return StorageQueries(places.pop(), *functions) if len(places) == 1 else None


def _places(tensor: Any) -> set[int]:
    """Return the offsets in the Python object that hold the C++ tensor's address."""
    size = ctypes.sizeof(ctypes.c_void_p)
    number = type(tensor).__basicsize__ // size
    words = (ctypes.c_void_p * number).from_address(id(tensor))
    return {i * size for i in range(number) if words[i] == tensor._cdata}
