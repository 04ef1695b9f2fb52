"""The collectives on Gloo.

Gloo takes tensors in contiguous memory, all of one size. It lacks reductions of some
dtypes, reduce-scatters and scans. For these, it gathers the arrays, and the package's
own kernels reduce them. Parts of unequal sizes are gathered by one broadcast of each.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from allhands._C import Buffer, CheckedCall, DType
from allhands.backends.gloo.work import GlooRequest
from allhands.backends.polled_collectives import PolledCollective
from allhands.backends.reduction import Reduction
from allhands.backends.rows import memory_of, slices, values
from allhands.options import RedOpType, ReduceOp

__all__ = ["GlooCollective", "as_bytes"]

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
    """Return the bytes of a contiguous buffer, which Gloo moves for any dtype."""
    return torch.from_numpy(memory_of(row))


class GlooCollective(PolledCollective):
    """One collective of Gloo on this rank."""

    _reduce_writes_everywhere = True

    def __init__(
        self,
        group: Any,
        checked: CheckedCall,
        op: RedOpType | ReduceOp,
        timeout: timedelta,
    ) -> None:
        super().__init__(checked, group.rank(), group.size(), op)
        self._group = group
        self._timeout = timeout

    def reduction(self) -> Reduction:
        """See `PolledCollective.reduction`."""
        reduction = super().reduction()
        reduction.is_gathered |= self.inputs[0].dtype not in _REDUCED
        return reduction

    def _start_barrier(self) -> GlooRequest:
        return GlooRequest(self._group.barrier(self._options(c10d.BarrierOptions)))

    def _start_broadcast(self, row: Buffer, root: int) -> GlooRequest:
        options = self._options(c10d.BroadcastOptions, root)
        options.rootTensor = 0
        return GlooRequest(self._group.broadcast([as_bytes(row)], options))

    def _start_all_gather(self, row: Buffer, to: Buffer) -> GlooRequest:
        options = self._options(c10d.AllgatherOptions)
        return GlooRequest(
            self._group._allgather_base(as_bytes(to), as_bytes(row), options)
        )

    def _start_gather(self, row: Buffer, to: Buffer | None) -> GlooRequest:
        options = self._options(c10d.GatherOptions, self.root)
        there = self._shares(to)
        return GlooRequest(self._group.gather(there, [as_bytes(row)], options))

    def _start_scatter(self, row: Buffer | None, to: Buffer) -> GlooRequest:
        options = self._options(c10d.ScatterOptions, self.root)
        here = self._shares(row)
        return GlooRequest(self._group.scatter([as_bytes(to)], here, options))

    def _start_all_to_all(
        self, row: Buffer, sent: list[int], to: Buffer, received: list[int]
    ) -> GlooRequest:
        width = (row.num_bytes + to.num_bytes) // max(row.count + to.count, 1)
        splits = [[count * width for count in counts] for counts in (received, sent)]
        options = self._options(c10d.AllToAllOptions)
        return GlooRequest(
            self._group.alltoall_base(as_bytes(to), as_bytes(row), *splits, options)
        )

    def _start_all_reduce(self, row: Buffer, reduction: Reduction) -> GlooRequest:
        options = self._options(c10d.AllreduceOptions)
        options.reduceOp = _torchs(reduction)
        return GlooRequest(self._group.allreduce([_elements(row)], options))

    def _start_reduce(self, row: Buffer, reduction: Reduction) -> GlooRequest:
        options = self._options(c10d.ReduceOptions, self.root)
        options.rootTensor = 0
        options.reduceOp = _torchs(reduction)
        return GlooRequest(self._group.reduce([_elements(row)], options))

    def _options(self, kind: Any, root: int | None = None) -> Any:
        """Return Gloo's options for this call."""
        options = kind()
        options.timeout = self._timeout
        if root is not None:
            options.rootRank = root
        return options

    def _shares(self, row: Buffer | None) -> list[list[torch.Tensor]]:
        """Return the root's row as equal parts, one per rank, in Gloo's form."""
        if row is None:
            return []
        counts = [row.count // self.size] * self.size
        return [[as_bytes(part) for part in slices(row, counts)]]


def _elements(row: Buffer) -> torch.Tensor:
    return torch.from_numpy(values(row))


def _torchs(reduction: Reduction) -> Any:
    return getattr(c10d.ReduceOp, _NAMES[reduction.kind])
