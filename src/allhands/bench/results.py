"""The results of measuring, and the figures calculated from them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from allhands.bench.cells import DTYPES, OPERATIONS, Cell

__all__ = ["Result", "geometric_mean", "percentile", "ratio", "shown_name"]


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest of `values` that at least `percent` % do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # nearest rank, rounded up
    return ordered[max(0, int(rank) - 1)]


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, as for ratios: the mean of 2 and 1/2 is 1."""
    return statistics.geometric_mean(values)


@dataclass
class Result:
    """One peer's result in one cell, in seconds per operation on the slowest rank.

    `blocks` has one time per round, of `calls` calls in a row; `p99` is the 99th
    percentile of `num_samples` calls timed alone. If the peer cannot run the cell,
    `absent` says why and there are no times.
    """

    cell: Cell
    peer: str
    calls: int = 0
    blocks: list[float] = field(default_factory=list)
    p99: float = 0.0
    num_samples: int = 0
    absent: str = ""

    @property
    def median(self) -> float:
        """The median of the blocks."""
        return statistics.median(self.blocks)

    @property
    def algbw(self) -> float:
        """Bytes per second of the larger buffer."""
        return self.cell.num_bytes / self.median

    @property
    def busbw(self) -> float:
        """Bytes per second that a link would have to carry (see nccl-tests)."""
        return self.algbw * self.cell.operation.bus_factor(self.cell.ranks)

    def as_json(self) -> dict[str, Any]:
        """Return one row of the record."""
        cell = self.cell
        row = {
            "hosts": cell.hosts,
            "ranks": cell.ranks,
            "op": cell.op,
            "dtype": cell.dtype,
            "arrays": cell.arrays,
            "mode": cell.mode,
            "size": cell.size,
            "bytes": cell.num_bytes,
            "peer": self.peer,
        }
        if self.absent:
            return {**row, "absent": self.absent}
        return {
            **row,
            "median": self.median,
            "p99": self.p99,
            "algbw": self.algbw,
            "busbw": self.busbw,
            "calls": self.calls,
            "num_samples": self.num_samples,
            "blocks": self.blocks,
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Result:
        """Return the result that `as_json` turned into `row`.

        Raises:
            KeyError: a figure is missing.
            TypeError: one has the wrong type.
            ValueError: one is out of range.
        """
        row = {"hosts": 1, **row}  # older records do not have it
        cell = Cell(**{field.name: row[field.name] for field in fields(Cell)})
        if cell.op not in OPERATIONS or cell.dtype not in DTYPES:
            raise ValueError(f"no operation {cell.op!r} of {cell.dtype!r} is known")
        if "absent" in row:
            return cls(cell, str(row["peer"]), absent=str(row["absent"]))
        blocks = [float(seconds) for seconds in row["blocks"]]
        if not blocks or not all(0 < seconds < inf for seconds in blocks):
            raise ValueError(f"blocks are {row['blocks']!r}; want positive seconds")
        p99, num_samples = float(row["p99"]), int(row["num_samples"])
        return cls(cell, str(row["peer"]), int(row["calls"]), blocks, p99, num_samples)


def ratio(other: Result, ours: Result) -> float | None:
    """Return how many times as long `other` takes; None if one of the two is absent."""
    if other.absent or ours.absent:
        return None
    return other.median / ours.median


def shown_name(peer: str) -> str:
    """Return the name of a peer, in which a path is cut to its last part."""
    return peer.rpartition("/")[2]
