"""The cells: a cell is one operation at one size, in one form, on a number of ranks.

Sizes and bus bandwidth are defined as in nccl-tests (doc/PERFORMANCE.md there): the
size of an operation is the number of bytes of the larger buffer that a rank passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product

__all__ = [
    "ARRAYS",
    "DTYPES",
    "MODES",
    "OPERATIONS",
    "Cell",
    "Operation",
    "Part",
    "all_cells",
]

DTYPES = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
}
ARRAYS = ("numpy", "torch", "shared")
MODES = ("sync", "async", "persistent")


class Part(Enum):
    """The part of a cell's elements that a buffer holds."""

    NONE = "none"
    SHARE = "one rank's share"
    WHOLE = "all"


@dataclass(frozen=True)
class Operation:
    """The properties of an operation that the benchmark needs.

    An operation without input works in place, on its output. Only rank 0 passes the
    buffer that `root_only` names. The bus bandwidth is the bytes per second times
    `bus_factor` of the number of ranks.
    """

    input: Part
    output: Part
    bus_factor: Callable[[int], float]
    root_only: str = ""
    reduces: bool = False


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_others(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _one(_: int) -> float:
    return 1.0


_NONE, _SHARE, _WHOLE = Part.NONE, Part.SHARE, Part.WHOLE
OPERATIONS = {
    "all_reduce": Operation(_NONE, _WHOLE, _twice_others, reduces=True),
    "broadcast": Operation(_NONE, _WHOLE, _one),
    "reduce": Operation(_NONE, _WHOLE, _one, reduces=True),
    "all_gather_single": Operation(_SHARE, _WHOLE, _others),
    "all_gather": Operation(_SHARE, _WHOLE, _others),
    "reduce_scatter_single": Operation(_WHOLE, _SHARE, _others, reduces=True),
    "reduce_scatter": Operation(_WHOLE, _SHARE, _others, reduces=True),
    "all_to_all_single": Operation(_WHOLE, _WHOLE, _others),
    "all_to_all": Operation(_WHOLE, _WHOLE, _others),
    "gather": Operation(_SHARE, _WHOLE, _others, root_only="output"),
    "scatter": Operation(_WHOLE, _SHARE, _others, root_only="input"),
    "send_recv": Operation(_WHOLE, _WHOLE, _one),
    "exchange": Operation(_WHOLE, _WHOLE, _one),
    "barrier": Operation(_NONE, _NONE, _one),
}


@dataclass(frozen=True)
class Cell:
    """One line of the results; `size` is the bytes asked for (see `num_bytes`).

    The ranks are spread over `hosts` hosts, the same number on each and the first ranks
    on the first host.
    """

    ranks: int
    op: str
    dtype: str
    arrays: str
    mode: str
    size: int
    hosts: int = 1

    @property
    def operation(self) -> Operation:
        """The properties of the cell's operation."""
        return OPERATIONS[self.op]

    @property
    def collective(self) -> str:
        """The operation's name, whether shares are in one array or in a list."""
        return self.op.removesuffix("_single")

    @property
    def count(self) -> int:
        """Elements of the larger buffer: at least one; with shares, one per rank."""
        if self.op == "barrier":
            return 0
        count = max(1, self.size // DTYPES[self.dtype])
        parts = (self.operation.input, self.operation.output)
        if Part.SHARE in parts or self.collective == "all_to_all":
            return -(-count // self.ranks) * self.ranks
        return count

    @property
    def num_bytes(self) -> int:
        """Bytes of the larger buffer that a rank passes."""
        return self.count * DTYPES[self.dtype]

    @property
    def num_operations(self) -> int:
        """The number of operations in one timed call: a ping and a pong are two."""
        return 2 if self.op == "send_recv" else 1

    def partner(self, rank: int) -> int | None:
        """Return the rank that exchanges messages with `rank`; None if there is none.

        On one host neighbours are partners, ranks 0 and 1, 2 and 3. On several hosts
        each rank of the first half has its partner in the second half, so that the two
        are on different hosts.
        """
        half = 1 if self.hosts == 1 else self.ranks // 2
        partner = rank + half if rank // half % 2 == 0 else rank - half
        return partner if partner < self.ranks else None


def all_cells(
    ranks: int,
    ops: Sequence[str],
    dtypes: Sequence[str],
    arrays: Sequence[str],
    modes: Sequence[str],
    sizes: Sequence[int],
    hosts: int = 1,
) -> Iterator[Cell]:
    """Yield the cells of one number of ranks; a barrier has no size, dtype or array."""
    for op in ops:
        if op == "barrier":
            for mode in modes:
                yield Cell(ranks, op, dtypes[0], arrays[0], mode, 0, hosts)
        else:
            for dtype, library, mode, size in product(dtypes, arrays, modes, sizes):
                yield Cell(ranks, op, dtype, library, mode, size, hosts)
