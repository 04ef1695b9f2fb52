"""The arrays of one rank for one cell: filled, checked, and cleared for timing.

Every array is a NumPy array in memory of its own (`fresh_zeros`), whatever library the
peer wraps it for. So all peers and all cells have arrays of the same kind; shared
arrays are the exception, where these are measured. Values repeat with a small period: a
few elements then say what millions must be, and sums stay exact in every dtype.
"""

from __future__ import annotations

import importlib
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from allhands.bench.cells import Cell, Part

__all__ = ["Allocate", "Data", "fresh_zeros", "numpy_dtype"]

Allocate = Callable[[int, np.dtype[Any]], np.ndarray[Any, Any]]

_MOVED = 61  # period of values that are only moved; prime, so that a shift shows
_LEAST_HUGE = 4 << 20  # bytes from which on NumPy asks for huge pages
_REDUCED = 5  # period of values that are summed: the sum of 25 ranks still fits int8


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of this name; bfloat16 is the one of ml_dtypes.

    Raises:
        ImportError: the dtype needs ml_dtypes, which is not installed.
    """
    if name == "bfloat16":
        importlib.import_module("ml_dtypes")  # the import registers bfloat16
    return np.dtype(name)


def fresh_zeros(count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return zeros as `np.zeros` does, but always in pages fresh from the kernel.

    The first array of a process has such pages. Memory that malloc uses again may be in
    huge pages or in small ones, by chance. That alone makes an all_reduce of 16 MiB
    take 1.0 to 1.3 times as long.
    """
    num_bytes = count * dtype.itemsize
    memory = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if num_bytes >= _LEAST_HUGE:
        with suppress(OSError):  # the kernel may have none
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8).view(dtype)


class Data:
    """`input` and `output` of one rank; None if the rank passes no such array.

    Every rank calls `allocate` the same number of times, also for an array that only
    the root passes.
    """

    def __init__(self, cell: Cell, rank: int, allocate: Allocate = fresh_zeros) -> None:
        self.cell = cell
        self.rank = rank
        operation = cell.operation
        self._period = _REDUCED if operation.reduces else _MOVED
        self.input = self._make("input", operation.input, allocate)
        self.output = self._make("output", operation.output, allocate)

    def _make(
        self, name: str, part: Part, allocate: Allocate
    ) -> np.ndarray[Any, Any] | None:
        if part is Part.NONE:
            return None
        count = self.share if part is Part.SHARE else self.cell.count
        array = allocate(count, numpy_dtype(self.cell.dtype))
        is_absent = self.cell.operation.root_only == name and self.rank != 0
        return None if is_absent else array

    @property
    def share(self) -> int:
        """Elements of one rank's share."""
        return self.cell.count // self.cell.ranks

    def fill(self) -> None:
        """Fill in values that differ between ranks; then call the operation, once."""
        if self.output is not None:
            values = self._values(self.rank) if self.input is None else self._values(0)
            _repeat(self.output, values)
        if self.input is not None:
            _repeat(self.input, self._values(self.rank))

    def check(self) -> None:
        """Check the result of the operation.

        Raises:
            ValueError: the result is wrong.
        """
        if self.output is None:
            return
        is_exact = self.cell.op != "reduce" or self.rank == 0
        for start, stop, values in self._expected() if is_exact else []:
            if not _repeats(self.output[start:stop], values):
                raise ValueError(f"{self.cell.op}: wrong result on rank {self.rank}")

    def clear(self) -> None:
        """Fill with zeros: their sums stay zero, however many calls follow."""
        for array in (self.input, self.output):
            if array is not None:
                array.fill(0)

    def _values(self, rank: int, offset: int = 0) -> np.ndarray[Any, Any]:
        """Return one period of what `rank` fills in, from the element at `offset`."""
        return (np.arange(self._period) + offset + 7 * rank) % self._period

    def _expected(self) -> list[tuple[int, int, np.ndarray[Any, Any]]]:
        """Return which range of the output must hold which period."""
        op, rank = self.cell.collective, self.rank
        share, count = self.share, self.cell.count
        ranks = range(self.cell.ranks)
        if op in ("all_reduce", "reduce"):
            return [(0, count, sum(map(self._values, ranks), np.zeros(1, int)))]
        if op == "reduce_scatter":
            values = [self._values(r, rank * share) for r in ranks]
            return [(0, share, sum(values, np.zeros(1, int)))]
        if op == "broadcast":
            return [(0, count, self._values(0))]
        if op in ("all_gather", "gather"):
            return [(r * share, (r + 1) * share, self._values(r)) for r in ranks]
        if op == "all_to_all":
            return [
                (r * share, (r + 1) * share, self._values(r, rank * share))
                for r in ranks
            ]
        if op == "scatter":
            return [(0, share, self._values(0, rank * share))]
        # a rank without a partner keeps what was filled in
        partner = self.cell.partner(rank)
        return [(0, count, self._values(partner or 0))]


def _repeat(array: np.ndarray[Any, Any], period: np.ndarray[Any, Any]) -> None:
    whole = array.size // period.size * period.size
    array[:whole].reshape(-1, period.size)[:] = period
    array[whole:] = period[: array.size - whole]


def _repeats(array: np.ndarray[Any, Any], period: np.ndarray[Any, Any]) -> bool:
    expected = period.astype(array.dtype)
    whole = array.size // period.size * period.size
    rows = array[:whole].reshape(-1, period.size)
    rest = array[whole:]
    return bool((rows == expected).all() and (rest == expected[: rest.size]).all())
