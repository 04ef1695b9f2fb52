"""PolledCollective: the collectives on another library, under the core's names.

Libraries take arrays in contiguous memory. Other arrays are packed, and unpacked at the
end. If the library cannot do a reduction, the arrays are gathered where the result is
needed. There the package's own kernels reduce them, in the order of the ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from allhands._C import Buffer, CheckedCall, DType
from allhands.backends.polled_work import Begun
from allhands.backends.reduction import FACTOR_BYTES, Reduction, reduce_parts
from allhands.backends.rows import (
    as_row,
    pack,
    row_to_read,
    row_to_write,
    scratch,
    slices,
    unpack,
    values,
)
from allhands.options import RedOpType, ReduceOp

__all__ = ["PolledCollective"]


class PolledCollective(ABC):
    """One collective on this rank, with its arguments checked.

    The subclass for a library defines the `_start_*` methods, which take contiguous
    rows and return a request. It overrides operations for which the library has a
    better way.
    """

    _reduce_writes_everywhere = False
    """Whether the library's reduce to one rank writes to the rows of all ranks."""

    def __init__(
        self, checked: CheckedCall, rank: int, size: int, op: RedOpType | ReduceOp
    ) -> None:
        self.rank, self.size = rank, size
        self.root: int = checked.root
        self.is_root = rank == checked.root
        self.inputs = checked.inputs
        self.outputs = checked.outputs
        self._name = checked.name
        self._op = op

    def begin(self) -> Begun:
        """Let the library begin the operation."""
        begun: Begun = getattr(self, self._name)()
        return begun

    def reduction(self) -> Reduction:
        """Return the reduction of its elements."""
        return Reduction(self._op, self.inputs[0].dtype)

    @abstractmethod
    def _start_barrier(self) -> Any:
        """Wait for all ranks."""

    @abstractmethod
    def _start_broadcast(self, row: Buffer, root: int) -> Any:
        """Broadcast from `root` to all ranks."""

    @abstractmethod
    def _start_all_gather(self, row: Buffer, to: Buffer) -> Any:
        """Gather rows of one size."""

    @abstractmethod
    def _start_gather(self, row: Buffer, to: Buffer | None) -> Any:
        """Gather rows of one size; only the root has `to`."""

    @abstractmethod
    def _start_scatter(self, row: Buffer | None, to: Buffer) -> Any:
        """Scatter parts of one size; only the root has `row`."""

    @abstractmethod
    def _start_all_to_all(
        self, row: Buffer, sent: list[int], to: Buffer, received: list[int]
    ) -> Any:
        """Exchange parts with these numbers of elements."""

    @abstractmethod
    def _start_all_reduce(self, row: Buffer, reduction: Reduction) -> Any:
        """Reduce in place."""

    @abstractmethod
    def _start_reduce(self, row: Buffer, reduction: Reduction) -> Any:
        """Reduce in place on the root."""

    def _start_all_gather_unequal(
        self, row: Buffer, to: Buffer, counts: list[int]
    ) -> list[Any]:
        """Gather rows of these sizes, by any number of requests: here by broadcasts."""
        parts = slices(to, counts)
        unpack(row, [parts[self.rank]])
        return [self._start_broadcast(part, root) for root, part in enumerate(parts)]

    def barrier(self) -> Begun:
        """See `allhands.barrier`."""
        return Begun([self._start_barrier()], _nothing, self)

    def broadcast(self) -> Begun:
        """See `allhands.broadcast`."""
        if self.is_root:
            row, end = row_to_read(self.inputs), _nothing
        else:
            row, end = row_to_write(self.outputs)
        return Begun([self._start_broadcast(row, self.root)], end, (self, row))

    def all_gather(self) -> Begun:
        """See `allhands.all_gather`."""
        to, end = row_to_write(self.outputs)
        row = row_to_read(self.inputs, to)
        counts = _counts(self.outputs)
        if len(set(counts)) == 1:
            requests = [self._start_all_gather(row, to)]
        else:
            requests = self._start_all_gather_unequal(row, to, counts)
        return Begun(requests, end, (self, row, to))

    def gather(self) -> Begun:
        """See `allhands.gather`."""
        to, end = row_to_write(self.outputs) if self.is_root else (None, _nothing)
        row = row_to_read(self.inputs, to)
        return Begun([self._start_gather(row, to)], end, (self, row, to))

    def scatter(self) -> Begun:
        """See `allhands.scatter`."""
        to, end = row_to_write(self.outputs)
        row = row_to_read(self.inputs, to) if self.is_root else None
        return Begun([self._start_scatter(row, to)], end, (self, row, to))

    def all_to_all(self) -> Begun:
        """See `allhands.all_to_all`."""
        to, end = row_to_write(self.outputs)
        row = row_to_read(self.inputs, to)
        sent, received = _counts(self.inputs), _counts(self.outputs)
        request = self._start_all_to_all(row, sent, to, received)
        return Begun([request], end, (self, row, to))

    def all_reduce(self) -> Begun:
        """See `allhands.all_reduce`."""
        reduction = self.reduction()
        if reduction.is_gathered:
            return self._gathered(reduction, self.size)
        row = as_row(self.inputs)
        target = row or pack(self.inputs)
        reduction.multiply(target)
        request = self._start_all_reduce(target, reduction)

        def end() -> None:
            reduction.divide(target, self.size)
            if row is None:
                unpack(target, self.outputs)

        return Begun([request], end, (self, target))

    def reduce(self) -> Begun:
        """See `allhands.reduce`."""
        reduction = self.reduction()
        if reduction.is_gathered:
            return self._gathered_to_root(reduction)
        row = as_row(self.inputs)
        is_written = self._reduce_writes_everywhere or reduction.has_factor
        if is_written and not self.is_root:
            row = None
        target = row or pack(self.inputs)
        reduction.multiply(target)
        request = self._start_reduce(target, reduction)

        def end() -> None:
            if self.is_root:
                reduction.divide(target, self.size)
                if row is None:
                    unpack(target, self.inputs)

        return Begun([request], end, (self, target))

    def reduce_scatter(self) -> Begun:
        """See `allhands.reduce_scatter`."""
        counts = _counts(self.inputs)
        received = [counts[self.rank]] * self.size
        row = row_to_read(self.inputs)
        to = scratch(row.dtype, sum(received))
        request = self._start_all_to_all(row, counts, to, received)
        parts = slices(to, received)
        return self._reduced(self.reduction(), request, parts, self.outputs, (row, to))

    def _reduce_scattered(
        self, reduction: Reduction, start: Callable[[Buffer, Buffer, list[int]], Any]
    ) -> Begun:
        """Let the library reduce a row to this rank's part, by the request `start`."""
        to, end = row_to_write(self.outputs)
        has_factor = reduction.has_factor
        row = pack(self.inputs) if has_factor else row_to_read(self.inputs, to)
        reduction.multiply(row)
        request = start(row, to, _counts(self.inputs))

        def end_all() -> None:
            reduction.divide(to, self.size)
            end()

        return Begun([request], end_all, (self, row, to))

    def scan(self) -> Begun:
        """See `allhands.scan`."""
        return self._gathered(self.reduction(), self.rank + 1)

    def exscan(self) -> Begun:
        """See `allhands.exscan`."""
        return self._gathered(self.reduction(), self.rank)

    def _gathered(self, reduction: Reduction, num_ranks: int) -> Begun:
        """Gather all inputs on every rank; reduce those of the first `num_ranks`."""
        row = row_to_read(self.inputs)
        to = scratch(row.dtype, row.count * self.size)
        request = self._start_all_gather(row, to)
        parts = slices(to, [row.count] * self.size)[:num_ranks]
        return self._reduced(reduction, request, parts, self.outputs, (row, to))

    def _gathered_to_root(self, reduction: Reduction) -> Begun:
        row = row_to_read(self.inputs)
        to = scratch(row.dtype, row.count * self.size) if self.is_root else None
        request = self._start_gather(row, to)
        parts = [] if to is None else slices(to, [row.count] * self.size)
        return self._reduced(reduction, request, parts, self.inputs, (row, to))

    def _reduced(
        self,
        reduction: Reduction,
        request: Any,
        parts: list[Buffer],
        outputs: Sequence[Buffer],
        memory: Any,
    ) -> Begun:
        """Return the operation that reduces `parts` after they have come."""
        requests = [request]
        factors = scratch(DType.UInt8, FACTOR_BYTES * self.size)
        if reduction.has_factor:
            mine = scratch(DType.UInt8, FACTOR_BYTES)
            values(mine)[:] = reduction.factor()
            requests.append(self._start_all_gather(mine, factors))
            memory = memory, mine
        rows = values(factors).reshape(self.size, FACTOR_BYTES)
        return Begun(
            requests,
            lambda: reduce_parts(reduction, parts, rows, outputs),
            (self, memory, factors),
        )


def _counts(buffers: Sequence[Buffer]) -> list[int]:
    return [buffer.count for buffer in buffers]


def _nothing() -> None:
    pass
