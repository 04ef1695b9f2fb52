"""Conversion of torch's sparse tensors in coordinate format (COO) to parts and back.

A row is the value at one column of `indices`: an array over the dense dimensions of
a hybrid tensor, or else a number. Rows are numbered in the order of the sparse
dimensions.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from allhands.arrays.sparse import Indices, Parts

__all__ = ["assign_parts", "parts_of"]

_torch: Any = importlib.import_module("torch")


def parts_of(array: Any) -> Parts:
    """See `allhands.arrays.sparse.SparseLibrary`."""
    sizes = _sparse_sizes(array)
    num_rows = math.prod(sizes)
    coalesced = array.detach().coalesce()
    indices = coalesced.indices().numpy()
    numbers = np.zeros(indices.shape[1], np.int64)
    for size, along in zip(sizes, indices, strict=True):
        numbers *= size
        numbers += along
    width = math.prod(array.shape[array.sparse_dim() :])
    return Parts(numbers, coalesced.values().contiguous(), num_rows, width)


def assign_parts(array: Any, indices: Indices, memory: np.ndarray[Any, Any]) -> None:
    """See `allhands.arrays.sparse.SparseLibrary`."""
    sizes = _sparse_sizes(array)
    along = np.empty((len(sizes), len(indices)), np.int64)
    for dim in reversed(range(len(sizes))):
        indices, along[dim] = np.divmod(indices, max(sizes[dim], 1))
    shape = (along.shape[1], *array.shape[len(sizes) :])
    values = _torch.empty(shape, dtype=array.dtype)
    values.view(-1).view(_torch.uint8).numpy()[:] = memory
    result = _torch.sparse_coo_tensor(
        _torch.from_numpy(along),
        values,
        array.shape,
        is_coalesced=True,
        check_invariants=False,
    )
    with _torch.no_grad():
        array.copy_(result)


def _sparse_sizes(array: Any) -> tuple[int, ...]:
    return tuple(array.shape[: array.sparse_dim()])
