"""The arrays of one rank for one cell: filled, checked, and cleared for timing.

Every array is NumPy's, whatever library the peer wants to see it through, and in memory
of its own (`fresh_zeros`), so that all peers and all cells have the same kind of it,
unless shared arrays are measured. Values repeat with a small period: a few elements say
what millions must be, and sums stay exact in every dtype.
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
_REDUCED = 5  # of values that are summed: the sum of 25 ranks still fits int8


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype; bfloat16 is that of ml_dtypes.

    Raises:
        ImportError: it needs ml_dtypes, which is not installed.
    """
    if name == "bfloat16":
        importlib.import_module("ml_dtypes")  # registers it
    return np.dtype(name)


def fresh_zeros(count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """As `np.zeros`, in pages fresh from the kernel, as a process's first array has.

    What malloc uses again lies in huge pages or in small ones, as chance has it. That
    alone makes an all_reduce of 16 MiB take 1.0 to 1.3 times as long.
    """
    num_bytes = count * dtype.itemsize
    memory = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if num_bytes >= _LEAST_HUGE:
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8).view(dtype)


class Data:
    """`input` and `output` of one rank; None where the operation has none there.

    All ranks call `allocate` alike, also for an array that only the root passes.
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
        """Values that differ from rank to rank; call the operation next, once."""
        if self.output is not None:
            values = self._values(self.rank) if self.input is None else self._values(0)
            _repeat(self.output, values)
        if self.input is not None:
            _repeat(self.input, self._values(self.rank))

    def check(self) -> None:
        """Look at what the operation left.

        Raises:
            ValueError: it is not what the operation must leave.
        """
        if self.output is None:
            return
        is_exact = self.cell.op != "reduce" or self.rank == 0
        for start, stop, values in self._expected() if is_exact else []:
            if not _repeats(self.output[start:stop], values):
                raise ValueError(f"{self.cell.op}: wrong result on rank {self.rank}")

    def clear(self) -> None:
        """Zeros: sums of them stay what they are, however many calls follow."""
        for array in (self.input, self.output):
            if array is not None:
                array.fill(0)

    def _values(self, rank: int, offset: int = 0) -> np.ndarray[Any, Any]:
        """A period of what `rank` fills in, from the element at `offset`."""
        return (np.arange(self._period) + offset + 7 * rank) % self._period

    def _expected(self) -> list[tuple[int, int, np.ndarray[Any, Any]]]:
        """Where the output has which period."""
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
        partner = self.cell.partner(rank)  # who has none keeps what was filled in
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
