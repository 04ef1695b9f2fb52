"""The torch objects that an unpickler of untrusted data may make.

They are those that `torch.load(weights_only=True)` allows, with those that the program
added, and the storages as `_torch.reducers` pickles them. The indices of sparse tensors
are checked, because torch reads and writes memory at the positions that they give.
"""

from __future__ import annotations

import importlib
from typing import Any

from allhands.arrays import _torch as tensors

__all__ = ["allowed_by_user", "loadable", "set_state"]

_torch: Any = importlib.import_module("torch")


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    if layout == _torch.sparse_coo:
        indices, values, size, *is_coalesced = data
        return _torch.sparse_coo_tensor(
            indices,
            values,
            size,
            is_coalesced=is_coalesced[0] if is_coalesced else None,
            check_invariants=True,
        )
    return _torch.sparse_compressed_tensor(*data, layout=layout, check_invariants=True)


_LOADABLE: dict[str, Any] = {
    **importlib.import_module("torch._weights_only_unpickler")._get_allowed_globals(),
    **{f"{made.__module__}.{made.__qualname__}": made for made in tensors.RESTORERS},
    "torch._utils._rebuild_sparse_tensor": _rebuild_sparse_tensor,
}


def loadable(name: str) -> Any:
    """See `allhands.arrays.loading.Loading`."""
    return _LOADABLE[name]


def set_state(made: Any, state: Any) -> bool:
    """See `allhands.arrays.loading.Loading`; tensors are made with their state."""
    return False


def allowed_by_user() -> dict[str, Any]:
    """See `allhands.arrays.loading.allowed_by_user`."""
    found: dict[str, Any] = {}
    safe = getattr(_torch.serialization, "get_safe_globals", list)  # since torch 2.5
    for entry in safe():
        made, name = entry if isinstance(entry, tuple) else (entry, None)
        found[name or f"{made.__module__}.{made.__qualname__}"] = made
    return found
