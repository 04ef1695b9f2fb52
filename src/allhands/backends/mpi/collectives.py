"""The collectives on MPI's non-blocking operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from allhands._C import Buffer, CheckedCall
from allhands.backends.mpi.memory import message
from allhands.backends.polled_collectives import PolledCollective
from allhands.backends.polled_work import Begun
from allhands.backends.reduction import Reduction
from allhands.backends.rows import pack, row_to_read, scratch, unpack
from allhands.options import RedOpType, ReduceOp

__all__ = ["MpiCollective"]


class MpiCollective(PolledCollective):
    """One collective of MPI on this rank."""

    def __init__(
        self, mpi: Any, comm: Any, checked: CheckedCall, op: RedOpType | ReduceOp
    ) -> None:
        super().__init__(checked, comm.Get_rank(), comm.Get_size(), op)
        self._mpi, self._comm = mpi, comm

    def _start_barrier(self) -> Any:
        return self._comm.Ibarrier()

    def _start_broadcast(self, row: Buffer, root: int) -> Any:
        return self._comm.Ibcast(self._message(row), root)

    def _start_all_gather(self, row: Buffer, to: Buffer) -> Any:
        return self._comm.Iallgather(self._message(row), self._shares(to))

    def _start_all_gather_unequal(
        self, row: Buffer, to: Buffer, counts: list[int]
    ) -> list[Any]:
        return [self._comm.Iallgatherv(self._message(row), self._parts(to, counts))]

    def _start_gather(self, row: Buffer, to: Buffer | None) -> Any:
        return self._comm.Igather(self._message(row), self._shares(to), self.root)

    def _start_scatter(self, row: Buffer | None, to: Buffer) -> Any:
        return self._comm.Iscatter(self._shares(row), self._message(to), self.root)

    def _start_all_to_all(
        self, row: Buffer, sent: list[int], to: Buffer, received: list[int]
    ) -> Any:
        return self._comm.Ialltoallv(self._parts(row, sent), self._parts(to, received))

    def _start_all_reduce(self, row: Buffer, reduction: Reduction) -> Any:
        return self._comm.Iallreduce(
            self._mpi.IN_PLACE, self._message(row), self._op_of(reduction)
        )

    def _start_reduce(self, row: Buffer, reduction: Reduction) -> Any:
        mine = self._message(row)
        rows = (self._mpi.IN_PLACE, mine) if self.is_root else (mine, None)
        return self._comm.Ireduce(*rows, self._op_of(reduction), self.root)

    def reduce_scatter(self) -> Begun:
        """See `PolledCollective.reduce_scatter`; MPI has this operation."""
        reduction = self.reduction()
        if reduction.is_gathered:
            return super().reduce_scatter()

        def start(row: Buffer, to: Buffer, counts: list[int]) -> Any:
            return self._comm.Ireduce_scatter(
                self._message(row), self._message(to), counts, self._op_of(reduction)
            )

        return self._reduce_scattered(reduction, start)

    def scan(self) -> Begun:
        """See `PolledCollective.scan`; MPI has this operation."""
        return self._prefix(self.rank + 1, self._comm.Iscan)

    def exscan(self) -> Begun:
        """See `PolledCollective.exscan`; MPI has this operation."""
        return self._prefix(self.rank, self._comm.Iexscan)

    def _prefix(self, num_ranks: int, start: Callable[..., Any]) -> Begun:
        reduction = self.reduction()
        if reduction.is_gathered:
            return self._gathered(reduction, num_ranks)
        to = scratch(self.outputs[0].dtype, self.outputs[0].count)
        row = pack(self.inputs) if reduction.has_factor else row_to_read(self.inputs)
        reduction.multiply(row)
        request = start(self._message(row), self._message(to), self._op_of(reduction))

        def end() -> None:
            if num_ranks > 0:
                reduction.divide(to, num_ranks)
                unpack(to, self.outputs)

        return Begun([request], end, (self, row, to))

    def _op_of(self, reduction: Reduction) -> Any:
        """Return MPI's operation for this reduction."""
        return getattr(self._mpi, reduction.name)

    def _message(self, row: Buffer) -> list[Any]:
        """Return the row in mpi4py's form."""
        return message(self._mpi, row)

    def _shares(self, row: Buffer | None) -> list[Any] | None:
        """Return a row of equal parts, one per rank, in mpi4py's form."""
        if row is None:
            return None
        memory, count, element = self._message(row)
        return [memory, count // self.size, element]

    def _parts(self, row: Buffer, counts: Sequence[int]) -> list[Any]:
        """Return a row of parts with these sizes, in mpi4py's form."""
        starts = [0, *accumulate(counts)][:-1]
        memory, _, element = self._message(row)
        return [memory, (list(counts), starts), element]
