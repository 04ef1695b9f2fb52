"""The collectives as MPI's non-blocking ones: one function each, by the core's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from allhands import _C
from allhands._C import Buffer
from allhands.backends.mpi_memory import message
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
)
from allhands.options import RedOpType, ReduceOp

__all__ = ["Collective", "begin"]


class Collective:
    """One collective on this rank, with its arguments checked."""

    def __init__(
        self,
        mpi: Any,
        comm: Any,
        checked: _C.CheckedCall,
        reduce_op: RedOpType | ReduceOp,
    ) -> None:
        self.mpi = mpi
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.root: int = checked.root
        self.inputs = checked.inputs
        self.outputs = checked.outputs
        self._reduce_op = reduce_op

    @property
    def is_root(self) -> bool:
        """Whether this rank is the root."""
        return self.rank == self.root

    def reduction(self) -> Reduction:
        """Of its elements."""
        return Reduction(self._reduce_op, self.inputs[0].dtype)

    def op_of(self, reduction: Reduction) -> Any:
        """MPI's, which does it."""
        return getattr(self.mpi, reduction.name)

    def message(self, buffer: Buffer) -> list[Any]:
        """As mpi4py takes it."""
        return message(self.mpi, buffer)

    def shares(self, row: Buffer) -> list[Any]:
        """A row of equal parts, one per rank, as mpi4py takes it: by the part."""
        memory, count, element = self.message(row)
        return [memory, count // self.size, element]

    def parts(self, row: Buffer, counts: Sequence[int]) -> list[Any]:
        """A row of parts of these sizes, as mpi4py takes it."""
        starts = [0, *accumulate(counts)][:-1]
        memory, _, element = self.message(row)
        return [memory, (list(counts), starts), element]


def begin(name: str, call: Collective) -> Begun:
    """Have MPI begin the collective that the core calls `name`."""
    return _BEGIN[name](call)


def _nothing() -> None:
    pass


def _barrier(call: Collective) -> Begun:
    return Begun([call.comm.Ibarrier()], _nothing, None)


def _broadcast(call: Collective) -> Begun:
    if call.is_root:
        row, end = row_to_read(call.inputs), _nothing
    else:
        row, end = row_to_write(call.outputs)
    request = call.comm.Ibcast(call.message(row), call.root)
    return Begun([request], end, (call, row))


def _all_gather(call: Collective) -> Begun:
    to, end = row_to_write(call.outputs)
    row = row_to_read(call.inputs, to)
    counts = [buffer.count for buffer in call.outputs]
    if len(set(counts)) == 1:
        request = call.comm.Iallgather(call.message(row), call.shares(to))
    else:
        request = call.comm.Iallgatherv(call.message(row), call.parts(to, counts))
    return Begun([request], end, (call, row, to))


def _gather(call: Collective) -> Begun:
    to, end = row_to_write(call.outputs) if call.is_root else (None, _nothing)
    row = row_to_read(call.inputs, to)
    there = None if to is None else call.shares(to)
    request = call.comm.Igather(call.message(row), there, call.root)
    return Begun([request], end, (call, row, to))


def _scatter(call: Collective) -> Begun:
    to, end = row_to_write(call.outputs)
    row = row_to_read(call.inputs, to) if call.is_root else None
    here = None if row is None else call.shares(row)
    request = call.comm.Iscatter(here, call.message(to), call.root)
    return Begun([request], end, (call, row, to))


def _all_to_all(call: Collective) -> Begun:
    to, end = row_to_write(call.outputs)
    row = row_to_read(call.inputs, to)
    sent = [buffer.count for buffer in call.inputs]
    received = [buffer.count for buffer in call.outputs]
    request = call.comm.Ialltoallv(call.parts(row, sent), call.parts(to, received))
    return Begun([request], end, (call, row, to))


def _all_reduce(call: Collective) -> Begun:
    reduction = call.reduction()
    if reduction.is_gathered:
        return _gathered(call, reduction, call.size)
    row = as_row(call.inputs)
    target = row or pack(call.inputs)
    reduction.multiply(target)
    request = call.comm.Iallreduce(
        call.mpi.IN_PLACE, call.message(target), call.op_of(reduction)
    )

    def end() -> None:
        reduction.divide(target, call.size)
        if row is None:
            unpack(target, call.outputs)

    return Begun([request], end, (call, target))


def _reduce(call: Collective) -> Begun:
    reduction = call.reduction()
    if reduction.is_gathered:
        return _gathered_to_root(call, reduction)
    row = as_row(call.inputs)
    if row is None or (reduction.has_factor and not call.is_root):
        target = pack(call.inputs)
    else:
        target = row
    reduction.multiply(target)
    row_of_all = call.message(target)
    here, there = (
        (call.mpi.IN_PLACE, row_of_all) if call.is_root else (row_of_all, None)
    )
    request = call.comm.Ireduce(here, there, call.op_of(reduction), call.root)

    def end() -> None:
        if call.is_root:
            reduction.divide(target, call.size)
            if target is not row:
                unpack(target, call.inputs)

    return Begun([request], end, (call, target))


def _reduce_scatter(call: Collective) -> Begun:
    reduction = call.reduction()
    counts = [buffer.count for buffer in call.inputs]
    if reduction.is_gathered:
        return _all_to_all_and_reduce(call, reduction, counts)
    to, end = row_to_write(call.outputs)
    row = pack(call.inputs) if reduction.has_factor else row_to_read(call.inputs, to)
    reduction.multiply(row)
    request = call.comm.Ireduce_scatter(
        call.message(row), call.message(to), counts, call.op_of(reduction)
    )

    def end_all() -> None:
        reduction.divide(to, call.size)
        end()

    return Begun([request], end_all, (call, row, to))


def _scan(call: Collective) -> Begun:
    return _prefix(call, call.rank + 1, call.comm.Iscan)


def _exscan(call: Collective) -> Begun:
    return _prefix(call, call.rank, call.comm.Iexscan)


def _prefix(call: Collective, num_ranks: int, start: Callable[..., Any]) -> Begun:
    reduction = call.reduction()
    if reduction.is_gathered:
        return _gathered(call, reduction, num_ranks)
    to = scratch(call.outputs[0].dtype, call.outputs[0].count)
    row = pack(call.inputs) if reduction.has_factor else row_to_read(call.inputs)
    reduction.multiply(row)
    request = start(call.message(row), call.message(to), call.op_of(reduction))

    def end() -> None:
        if num_ranks > 0:
            reduction.divide(to, num_ranks)
            unpack(to, call.outputs)

    return Begun([request], end, (call, row, to))


def _gathered(call: Collective, reduction: Reduction, num_ranks: int) -> Begun:
    """Every rank has all inputs, and reduces those of the first `num_ranks`."""
    count = call.inputs[0].count
    row = row_to_read(call.inputs)
    all_rows = scratch(row.dtype, count * call.size)
    request = call.comm.Iallgather(call.message(row), call.shares(all_rows))
    factors, requests = _factors(call, reduction)
    parts = slices(all_rows, [count] * call.size)[:num_ranks]
    return Begun(
        [request, *requests],
        lambda: reduce_parts(reduction, parts, factors, call.outputs),
        (call, row, all_rows, factors),
    )


def _gathered_to_root(call: Collective, reduction: Reduction) -> Begun:
    count = call.inputs[0].count
    row = row_to_read(call.inputs)
    all_rows = scratch(row.dtype, count * call.size if call.is_root else 0)
    there = call.shares(all_rows) if call.is_root else None
    request = call.comm.Igather(call.message(row), there, call.root)
    factors, requests = _factors(call, reduction)
    parts = slices(all_rows, [count] * call.size) if call.is_root else []
    return Begun(
        [request, *requests],
        lambda: reduce_parts(reduction, parts, factors, call.inputs),
        (call, row, all_rows, factors),
    )


def _all_to_all_and_reduce(
    call: Collective, reduction: Reduction, counts: list[int]
) -> Begun:
    received = [counts[call.rank]] * call.size
    row = row_to_read(call.inputs)
    all_rows = scratch(row.dtype, sum(received))
    request = call.comm.Ialltoallv(
        call.parts(row, counts), call.parts(all_rows, received)
    )
    factors, requests = _factors(call, reduction)
    parts = slices(all_rows, received)
    return Begun(
        [request, *requests],
        lambda: reduce_parts(reduction, parts, factors, call.outputs),
        (call, row, all_rows, factors),
    )


def _factors(call: Collective, reduction: Reduction) -> tuple[Any, list[Any]]:
    """A row for each rank's factor, and the request that brings them."""
    factors = np.zeros((call.size, FACTOR_BYTES), np.uint8)
    if not reduction.has_factor:
        return factors, []
    return factors, [call.comm.Iallgather(reduction.factor(), factors)]


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
