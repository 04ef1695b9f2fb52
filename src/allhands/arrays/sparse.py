"""Sparse arrays as parts: some rows of a dense array, whose other rows are zero.

They have no memory that looks like the array, so `as_buffer` raises `SparseArrayError`.
`all_reduce` takes them apart instead; a library that has such arrays gives the
functions of `SparseLibrary`, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

__all__ = ["Indices", "Parts", "SparseArrayError", "SparseLibrary"]

Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


class SparseArrayError(RuntimeError):
    """Only `all_reduce` takes this array."""


@dataclass(frozen=True)
class Parts:
    """`values` are the rows of `width` elements that `indices` name of `num_rows`."""

    indices: Indices
    """Ascending."""
    values: Any
    """A dense array of the same library."""
    num_rows: int
    width: int


class SparseLibrary(Protocol):
    """What a library has whose `as_buffer` raises `SparseArrayError`."""

    def parts_of(self, array: Any) -> Parts:
        """What `array` consists of; rows of equal index have been added up."""

    def assign_parts(
        self, array: Any, indices: Indices, memory: np.ndarray[Any, Any]
    ) -> None:
        """Let `array` have these rows and no others, in place; `memory` has them all.

        The indices ascend.
        """
