"""The numbers of the tuning that depend on the machine, and how they are chosen.

A threshold is the size from which on another algorithm is used. Two jobs measure the
same cells, one job with the one algorithm at every size and one job with the other.
Their times give the times with any threshold in between.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from allhands.bench.cells import Cell

__all__ = [
    "NEVER",
    "THRESHOLDS",
    "VARIANTS",
    "Choice",
    "Threshold",
    "Times",
    "choose",
    "plan",
]

_K, _M = 1 << 10, 1 << 20
NEVER = 1 << 40
_GAIN = 1.02  # a smaller gain is noise, and the number stays

_STAGED = {
    "read_bytes": NEVER,
    "read_rooted_bytes": NEVER,
    "read_broadcast_bytes": NEVER,
    "read_all_to_all_bytes": NEVER,
    "read_reduce_scatter_bytes": NEVER,
    "read_reduce_bytes": NEVER,
    "read_most_bytes": NEVER,
    "stream_bytes": NEVER,
    "eager_bytes": 64 * _K,
    "handover_bytes": NEVER,
}
_READ = {
    **dict.fromkeys(_STAGED, 4 * _K),
    "read_most_bytes": NEVER,
    "stream_bytes": NEVER,
}
# What the ranks of a job do at every size, as changes of the tuning.
VARIANTS: Mapping[str, Mapping[str, int]] = {
    "staged": _STAGED,
    "read": _READ,
    "staged and streamed": {**_STAGED, "stream_bytes": 4 * _K},
    "read and streamed": {**_READ, "stream_bytes": 4 * _K},
    "staged by 128K": {**_STAGED, "chunk_bytes": 128 * _K},
    "staged by 512K": {**_STAGED, "chunk_bytes": 512 * _K},
    "staged by 1M": {**_STAGED, "chunk_bytes": _M},
}


@dataclass(frozen=True)
class Threshold:
    """One number of the tuning, or several with the same value: `names`.

    `ops` have cells of `sizes`, in bytes of the larger buffer, on numbers of ranks that
    `is_for` accepts. A cell below the number takes the time of the variant `below`; the
    other cells take that of `above`. The size is compared with the number, or, if
    `is_of_shares`, a part of the size; with `is_most` a cell of exactly that size
    counts as below.
    """

    names: Sequence[str]
    ops: Sequence[str]
    sizes: Sequence[int]
    below: str
    above: str
    candidates: Sequence[int]
    is_for: Callable[[str, int], bool] = lambda _op, _ranks: True
    is_of_shares: bool = False
    is_most: bool = False

    def cells(self, ranks: int) -> list[Cell]:
        """Return the cells that show where the number should be."""
        ops = [op for op in self.ops if self.is_for(op, ranks)]
        return [_cell(ranks, op, size) for op in ops for size in self.sizes]

    def variant(self, cell: Cell, number: int) -> str:
        """Return the variant whose time `cell` would take."""
        size = _compared(cell) if self.is_of_shares else cell.size
        is_above = size > number if self.is_most else size >= number
        return self.above if is_above else self.below


def _compared(cell: Cell) -> int:
    """Return the bytes that a rank gets from another, or that others need not stage."""
    share = cell.size // cell.ranks
    if cell.op == "scatter":
        return cell.size - share
    return share if cell.collective in ("all_gather", "gather") else cell.size


def _cell(ranks: int, op: str, size: int) -> Cell:
    return Cell(ranks, op, "float32", "numpy", "sync", size)


def _powers(least: int, most: int) -> list[int]:
    return [1 << power for power in range(least.bit_length() - 1, most.bit_length())]


_SMALL = _powers(8 * _K, 512 * _K)
_LARGE = _powers(_M, 64 * _M)
# From 4 MiB on NumPy's arrays have large pages, which the kernel reads faster.
_MANY = [*_SMALL, *_powers(_M, 16 * _M)]
THRESHOLDS = (
    Threshold(
        ["read_bytes"],
        ["all_gather_single"],
        _MANY,
        "staged",
        "read",
        [*_powers(8 * _K, 8 * _M), NEVER],
        is_of_shares=True,
    ),
    Threshold(
        ["read_all_to_all_bytes"],
        ["all_to_all_single"],
        _MANY,
        "staged",
        "read",
        [*_powers(8 * _K, 8 * _M), NEVER],
    ),
    Threshold(
        ["read_rooted_bytes"],
        ["gather", "scatter", "broadcast"],
        _MANY,
        "staged",
        "read",
        [*_powers(8 * _K, 8 * _M), NEVER],
        lambda op, ranks: op != "broadcast" or ranks == 2,
        is_of_shares=True,
    ),
    Threshold(
        ["read_broadcast_bytes"],
        ["broadcast"],
        [*_SMALL, *_LARGE[:-2]],
        "staged",
        "read",
        [*_powers(8 * _K, 16 * _M), NEVER],
        lambda _op, ranks: ranks > 2,
    ),
    Threshold(
        ["read_reduce_scatter_bytes"],
        ["reduce_scatter_single"],
        [*_SMALL, *_LARGE[:-2]],
        "staged",
        "read",
        [*_powers(16 * _K, 16 * _M), NEVER],
    ),
    Threshold(
        ["read_reduce_bytes"],
        ["all_reduce"],
        _LARGE[:-2],
        "staged",
        "read",
        [*_powers(512 * _K, 16 * _M), NEVER],
    ),
    Threshold(
        ["stream_bytes"],
        ["all_gather_single", "all_to_all_single"],
        _LARGE,
        "read",
        "read and streamed",
        [*_powers(_M, 64 * _M), NEVER],
    ),
    Threshold(
        ["read_most_bytes"],
        ["all_gather_single"],
        _LARGE[2:],
        "read and streamed",
        "staged and streamed",
        [*_powers(4 * _M, 64 * _M), NEVER],
    ),
    Threshold(
        ["read_most_all_to_all_bytes"],
        ["all_to_all_single"],
        _LARGE[2:],
        "read and streamed",
        "staged and streamed",
        [*_powers(4 * _M, 64 * _M), NEVER],
    ),
    Threshold(
        ["eager_bytes"],
        ["send_recv"],
        [*_powers(4 * _K, 64 * _K), 48 * _K],
        "staged",
        "read",
        _powers(4 * _K, 64 * _K),
        is_most=True,
    ),
    Threshold(
        ["handover_bytes"],
        ["send_recv", "exchange"],
        _powers(32 * _K, 16 * _M),
        "staged",
        "read",
        [*_powers(32 * _K, 8 * _M), NEVER],
    ),
)
# How much is staged before the ranks meet; no size decides this one.
_CHUNKS = {
    128 * _K: "staged by 128K",
    256 * _K: "staged",
    512 * _K: "staged by 512K",
    _M: "staged by 1M",
}
_CHUNKED = [("all_reduce", _M), ("all_reduce", 4 * _M), ("all_gather_single", 4 * _M)]

# The seconds that a cell takes, by variant.
Times = Mapping[Cell, Mapping[str, float]]


def plan(ranks: int) -> dict[Cell, list[str]]:
    """Return what is to be measured on `ranks` ranks: the variants of each cell."""
    wanted: dict[Cell, list[str]] = {}
    for threshold in THRESHOLDS:
        for cell in threshold.cells(ranks):
            wanted.setdefault(cell, []).extend([threshold.below, threshold.above])
    for op, size in _CHUNKED:
        wanted.setdefault(_cell(ranks, op, size), []).extend(_CHUNKS.values())
    return {cell: list(dict.fromkeys(names)) for cell, names in wanted.items()}


@dataclass(frozen=True)
class Choice:
    """A number and its gain: the cells would take `gain` times as long as now."""

    name: str
    now: int
    best: int
    gain: float


def choose(times: Times, now: Mapping[str, int]) -> list[Choice]:
    """Return the best number for each name whose cells were measured.

    The best number has the smallest geometric mean of times. The present one, `now`,
    stays where no other is 2 % better.
    """
    choices: list[Choice] = []
    for threshold in THRESHOLDS:
        ranks = {cell.ranks for cell in times}
        cells = [cell for n in sorted(ranks) for cell in threshold.cells(n)]
        if cells and all(cell in times for cell in cells):
            choices += _choose_one(threshold, cells, times, now)
    chunked = [cell for cell in times if (cell.op, cell.size) in _CHUNKED]
    if chunked:
        costs = {
            chunk: _mean(times[cell][variant] for cell in chunked)
            for chunk, variant in _CHUNKS.items()
        }
        choices.append(_best("chunk_bytes", costs, now["chunk_bytes"]))
    return choices


def _choose_one(
    threshold: Threshold, cells: Sequence[Cell], times: Times, now: Mapping[str, int]
) -> Iterator[Choice]:
    costs = {
        number: _mean(times[cell][threshold.variant(cell, number)] for cell in cells)
        for number in {*threshold.candidates, *(now[name] for name in threshold.names)}
    }
    for name in threshold.names:
        yield _best(name, costs, now[name])


def _mean(seconds: Iterable[float]) -> float:
    return statistics.geometric_mean(seconds)


def _best(name: str, costs: Mapping[int, float], now: int) -> Choice:
    """Return the middle one of equally good numbers: it has the most room for error."""
    present = costs.get(now, math.inf)
    least = min(costs.values())
    if present <= least * _GAIN:
        return Choice(name, now, now, 1.0)
    equal = sorted(number for number, cost in costs.items() if cost <= least * 1.0001)
    best = equal[(len(equal) - 1) // 2]
    return Choice(name, now, best, present / least)
