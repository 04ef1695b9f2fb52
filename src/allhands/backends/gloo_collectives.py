"""The collectives as Gloo's: one function each, by the core's name.

Gloo takes tensors in a row of memory, all of one size. What it cannot do, reductions of
some dtypes, scans, gathering parts of unequal sizes, is made of what it can: parts are
broadcast one after the other, and what all have gathered is reduced by our kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch.distributed import distributed_c10d as c10d

from allhands._C import Buffer, CheckedCall, DType
from allhands.backends.gloo_work import GlooCollective
from allhands.backends.polled_work import Begun
from allhands.backends.reduction import FACTOR_BYTES, Reduction, reduce_parts
from allhands.backends.rows import (
    as_row,
    memory_of,
    pack,
    row_to_read,
    row_to_write,
    scratch,
    slices,
    unpack,
    values,
)
from allhands.options import RedOpType, ReduceOp

__all__ = ["Collective", "as_bytes", "begin"]

_REDUCED = {
    *(DType.Bool, DType.Int8, DType.Int32, DType.Int64, DType.UInt8),
    *(DType.Float32, DType.Float64),
}
_NAMES = {
    RedOpType.SUM: "SUM",
    RedOpType.PREMUL_SUM: "SUM",
    RedOpType.AVG: "SUM",
    RedOpType.PRODUCT: "PRODUCT",
    RedOpType.MIN: "MIN",
    RedOpType.MAX: "MAX",
    RedOpType.BAND: "BAND",
    RedOpType.BOR: "BOR",
    RedOpType.BXOR: "BXOR",
}


def as_bytes(row: Buffer) -> torch.Tensor:
    """The memory of a contiguous buffer, as Gloo moves any dtype."""
    return torch.from_numpy(memory_of(row))


class Collective:
    """One collective on this rank, with its arguments checked."""

    def __init__(
        self,
        group: Any,
        checked: CheckedCall,
        reduce_op: RedOpType | ReduceOp,
        timeout: timedelta,
    ) -> None:
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.root: int = checked.root
        self.inputs = checked.inputs
        self.outputs = checked.outputs
        self._group = group
        self._reduce_op = reduce_op
        self._timeout = timeout

    @property
    def is_root(self) -> bool:
        """Whether this rank is the root."""
        return self.rank == self.root

    def reduction(self) -> Reduction:
        """Of its elements."""
        dtype = self.inputs[0].dtype
        reduction = Reduction(self._reduce_op, dtype)
        reduction.is_gathered |= dtype not in _REDUCED
        return reduction

    def options(self, kind: Any, root: int | None = None) -> Any:
        """Gloo's, of this call."""
        options = kind()
        options.timeout = self._timeout
        if root is not None:
            options.rootRank = root
        return options

    def barrier(self) -> GlooCollective:
        """Gloo's."""
        return GlooCollective(self._group.barrier(self.options(c10d.BarrierOptions)))

    def broadcast(self, row: Buffer, root: int) -> GlooCollective:
        """From `root` to all."""
        options = self.options(c10d.BroadcastOptions, root)
        options.rootTensor = 0
        return GlooCollective(self._group.broadcast([as_bytes(row)], options))

    def all_gather(self, row: Buffer, to: Buffer) -> GlooCollective:
        """Rows of one size."""
        return GlooCollective(
            self._group._allgather_base(
                as_bytes(to), as_bytes(row), self.options(c10d.AllgatherOptions)
            )
        )

    def gather(self, row: Buffer, parts: Sequence[Buffer]) -> GlooCollective:
        """Rows of one size, to the root's `parts`."""
        there = [[as_bytes(part) for part in parts]] if self.is_root else []
        options = self.options(c10d.GatherOptions, self.root)
        return GlooCollective(self._group.gather(there, [as_bytes(row)], options))

    def scatter(self, parts: Sequence[Buffer], to: Buffer) -> GlooCollective:
        """Rows of one size, the root's `parts`."""
        here = [[as_bytes(part) for part in parts]] if self.is_root else []
        options = self.options(c10d.ScatterOptions, self.root)
        return GlooCollective(self._group.scatter([as_bytes(to)], here, options))

    def all_to_all(
        self, row: Buffer, sent: list[int], to: Buffer, received: list[int]
    ) -> GlooCollective:
        """Parts of these numbers of elements."""
        width = (row.num_bytes + to.num_bytes) // max(row.count + to.count, 1)
        splits = [[count * width for count in counts] for counts in (received, sent)]
        options = self.options(c10d.AllToAllOptions)
        return GlooCollective(
            self._group.alltoall_base(as_bytes(to), as_bytes(row), *splits, options)
        )

    def all_reduce(self, row: Buffer, reduction: Reduction) -> GlooCollective:
        """In place."""
        options = self.options(c10d.AllreduceOptions)
        options.reduceOp = _torchs(reduction)
        return GlooCollective(self._group.allreduce([_elements(row)], options))

    def reduce(self, row: Buffer, reduction: Reduction) -> GlooCollective:
        """In place on the root; what others have is lost."""
        options = self.options(c10d.ReduceOptions, self.root)
        options.rootTensor = 0
        options.reduceOp = _torchs(reduction)
        return GlooCollective(self._group.reduce([_elements(row)], options))


def begin(name: str, call: Collective) -> Begun:
    """Have Gloo begin the collective that the core calls `name`."""
    return _BEGIN[name](call)


def _elements(row: Buffer) -> torch.Tensor:
    return torch.from_numpy(values(row))


def _torchs(reduction: Reduction) -> Any:
    return getattr(c10d.ReduceOp, _NAMES[reduction.kind])


def _nothing() -> None:
    pass


def _barrier(call: Collective) -> Begun:
    return Begun([call.barrier()], _nothing, None)


def _broadcast(call: Collective) -> Begun:
    if call.is_root:
        row, end = row_to_read(call.inputs), _nothing
    else:
        row, end = row_to_write(call.outputs)
    return Begun([call.broadcast(row, call.root)], end, (call, row))


def _all_gather(call: Collective) -> Begun:
    to, end = row_to_write(call.outputs)
    counts = [buffer.count for buffer in call.outputs]
    if len(set(counts)) > 1:
        return _all_gather_unequal(call, to, counts, end)
    row = row_to_read(call.inputs, to)
    return Begun([call.all_gather(row, to)], end, (call, row, to))


def _all_gather_unequal(
    call: Collective, to: Buffer, counts: list[int], end: Callable[[], None]
) -> Begun:
    parts = slices(to, counts)
    unpack(row_to_read(call.inputs, to), [parts[call.rank]])
    requests = [call.broadcast(part, root) for root, part in enumerate(parts)]
    return Begun(requests, end, (call, to))


def _gather(call: Collective) -> Begun:
    to, end = row_to_write(call.outputs) if call.is_root else (None, _nothing)
    row = row_to_read(call.inputs, to)
    parts = [] if to is None else slices(to, [row.count] * call.size)
    return Begun([call.gather(row, parts)], end, (call, row, to))


def _scatter(call: Collective) -> Begun:
    to, end = row_to_write(call.outputs)
    row = row_to_read(call.inputs, to) if call.is_root else None
    parts = [] if row is None else slices(row, [to.count] * call.size)
    return Begun([call.scatter(parts, to)], end, (call, row, to))


def _all_to_all(call: Collective) -> Begun:
    to, end = row_to_write(call.outputs)
    row = row_to_read(call.inputs, to)
    sent = [buffer.count for buffer in call.inputs]
    received = [buffer.count for buffer in call.outputs]
    request = call.all_to_all(row, sent, to, received)
    return Begun([request], end, (call, row, to))


def _all_reduce(call: Collective) -> Begun:
    reduction = call.reduction()
    if reduction.is_gathered:
        return _gathered(call, reduction, call.size)
    row = as_row(call.inputs)
    target = row or pack(call.inputs)
    reduction.multiply(target)
    request = call.all_reduce(target, reduction)

    def end() -> None:
        reduction.divide(target, call.size)
        if row is None:
            unpack(target, call.outputs)

    return Begun([request], end, (call, target))


def _reduce(call: Collective) -> Begun:
    reduction = call.reduction()
    if reduction.is_gathered:
        return _gathered(call, reduction, call.size, call.root)
    row = as_row(call.inputs) if call.is_root else None
    target = row or pack(call.inputs)  # Gloo writes to it on every rank
    reduction.multiply(target)
    request = call.reduce(target, reduction)

    def end() -> None:
        if call.is_root:
            reduction.divide(target, call.size)
            if row is None:
                unpack(target, call.inputs)

    return Begun([request], end, (call, target))


def _reduce_scatter(call: Collective) -> Begun:
    """All is sent where it is reduced, in the order of the ranks, by our kernels."""
    reduction = call.reduction()
    counts = [buffer.count for buffer in call.inputs]
    received = [counts[call.rank]] * call.size
    row = row_to_read(call.inputs)
    all_rows = scratch(row.dtype, sum(received))
    request = call.all_to_all(row, counts, all_rows, received)
    parts = slices(all_rows, received)
    return _reduced(call, reduction, [request], parts, call.outputs, (row, all_rows))


def _scan(call: Collective) -> Begun:
    return _gathered(call, call.reduction(), call.rank + 1)


def _exscan(call: Collective) -> Begun:
    return _gathered(call, call.reduction(), call.rank)


def _gathered(
    call: Collective, reduction: Reduction, num_ranks: int, root: int = -1
) -> Begun:
    """Gather all inputs, to `root` or everywhere, and reduce the first `num_ranks`."""
    count = call.inputs[0].count
    is_here = root in (-1, call.rank)
    row = row_to_read(call.inputs)
    all_rows = scratch(row.dtype, count * call.size if is_here else 0)
    parts = slices(all_rows, [count] * call.size) if is_here else []
    request = call.all_gather(row, all_rows) if root < 0 else call.gather(row, parts)
    outputs = call.outputs if root < 0 else call.inputs
    first = parts[:num_ranks]
    return _reduced(call, reduction, [request], first, outputs, (row, all_rows))


def _reduced(
    call: Collective,
    reduction: Reduction,
    requests: list[GlooCollective],
    parts: list[Buffer],
    outputs: Sequence[Buffer],
    memory: Any,
) -> Begun:
    """What reduces `parts` when they have come, with the factor of each rank."""
    factors = np.zeros((call.size, FACTOR_BYTES), np.uint8)
    if reduction.has_factor:
        row = reduction.factor().copy()
        mine = Buffer(row.ctypes.data, DType.UInt8, row.shape, None, row)
        there = Buffer(factors.ctypes.data, DType.UInt8, (factors.size,), None, factors)
        requests = [*requests, call.all_gather(mine, there)]
        memory = memory, mine, there
    return Begun(
        requests,
        lambda: reduce_parts(reduction, parts, factors, outputs),
        (call, memory),
    )


_BEGIN: dict[str, Callable[[Collective], Begun]] = {
    "barrier": _barrier,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "scan": _scan,
    "exscan": _exscan,
}
