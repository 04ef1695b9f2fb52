"""The collectives on oneCCL's C functions for CPU arrays.

oneCCL takes contiguous memory and equal sizes. It moves any dtype as bytes. It lacks
gather and scatter, so it moves more than they need: an all-gather and a broadcast.
Before parts of unequal sizes are exchanged, the ranks tell each other the sizes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from allhands._C import Buffer, CheckedCall, DType
from allhands.backends.call_thread import CallThread
from allhands.backends.polled_collectives import PolledCollective
from allhands.backends.polled_work import Begun
from allhands.backends.reduction import Reduction
from allhands.backends.rows import memory_of, scratch, slices, unpack, values
from allhands.backends.threaded_request import ThreadedRequest
from allhands.backends.xccl.library import OneCclLibrary
from allhands.options import RedOpType, ReduceOp

__all__ = ["XcclCollective"]

_BYTES = 1
_DTYPES = {
    **{DType.Int8: 0, DType.UInt8: _BYTES, DType.Int32: 2, DType.UInt32: 3},
    **{DType.Int64: 4, DType.UInt64: 5, DType.Float32: 7, DType.Float64: 8},
}
"""oneCCL's numbers of the dtypes that it reduces."""
_OPS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3}


class XcclCollective(PolledCollective):
    """One collective of oneCCL on this rank."""

    _reduce_writes_everywhere = True

    def __init__(
        self,
        library: OneCclLibrary,
        thread: CallThread,
        comm: ctypes.c_void_p,
        checked: CheckedCall,
        op: RedOpType | ReduceOp,
        place: tuple[int, int],
    ) -> None:
        super().__init__(checked, *place, op)
        self._library, self._thread, self._comm = library, thread, comm

    def reduction(self) -> Reduction:
        """See `PolledCollective.reduction`."""
        reduction = super().reduction()
        dtype = self.inputs[0].dtype
        reduction.is_gathered |= dtype not in _DTYPES or reduction.name not in _OPS
        return reduction

    def reduce_scatter(self) -> Begun:
        """See `PolledCollective.reduce_scatter`; oneCCL has it for equal sizes."""
        reduction = self.reduction()
        is_equal = len({buffer.count for buffer in self.inputs}) == 1
        if reduction.is_gathered or not is_equal:
            return super().reduce_scatter()

        def start(row: Buffer, to: Buffer, counts: list[int]) -> ThreadedRequest:
            return self._start(lambda: self._reduce_scatter(row, to, reduction))

        return self._reduce_scattered(reduction, start)

    def _start(self, function: Callable[[], None]) -> ThreadedRequest:
        return self._thread.start(function)

    def _start_barrier(self) -> ThreadedRequest:
        row = scratch(DType.UInt8, 1)
        return self._start(lambda: self._all_reduce(row, _BYTES, _OPS["MAX"]))

    def _start_broadcast(self, row: Buffer, root: int) -> ThreadedRequest:
        return self._start(lambda: self._broadcast(row, root))

    def _start_all_gather(self, row: Buffer, to: Buffer) -> ThreadedRequest:
        return self._start(lambda: self._all_gather(row, to))

    def _start_gather(self, row: Buffer, to: Buffer | None) -> ThreadedRequest:
        there = scratch(row.dtype, row.count * self.size) if to is None else to
        return self._start(lambda: self._all_gather(row, there))

    def _start_scatter(self, row: Buffer | None, to: Buffer) -> ThreadedRequest:
        whole = scratch(to.dtype, to.count * self.size) if row is None else row

        def scatter() -> None:
            self._broadcast(whole, self.root)
            unpack(slices(whole, [to.count] * self.size)[self.rank], [to])

        return self._start(scatter)

    def _start_all_to_all(
        self, row: Buffer, sent: list[int], to: Buffer, received: list[int]
    ) -> ThreadedRequest:
        return self._start(lambda: self._all_to_all(row, sent, to, received))

    def _start_all_reduce(self, row: Buffer, reduction: Reduction) -> ThreadedRequest:
        dtype, op = _DTYPES[row.dtype], _OPS[reduction.name]
        return self._start(lambda: self._all_reduce(row, dtype, op))

    def _start_reduce(self, row: Buffer, reduction: Reduction) -> ThreadedRequest:
        count = ctypes.c_size_t(row.count)
        dtype, op = _DTYPES[row.dtype], _OPS[reduction.name]
        return self._start(
            lambda: self._library.call(
                "onecclReduce",
                *(_at(row), _at(row), count, dtype, op, self.root, self._comm, None),
            )
        )

    def _all_reduce(self, row: Buffer, dtype: int, op: int) -> None:
        count = ctypes.c_size_t(row.count)
        self._library.call(
            "onecclAllReduce", _at(row), _at(row), count, dtype, op, self._comm, None
        )

    def _reduce_scatter(self, row: Buffer, to: Buffer, reduction: Reduction) -> None:
        count = ctypes.c_size_t(to.count)
        dtype, op = _DTYPES[row.dtype], _OPS[reduction.name]
        self._library.call(
            "onecclReduceScatter",
            *(_at(row), _at(to), count, dtype, op, self._comm, None),
        )

    def _broadcast(self, row: Buffer, root: int) -> None:
        count = ctypes.c_size_t(row.num_bytes)
        self._library.call(
            "onecclBroadcast",
            *(_at(row), _at(row), count, _BYTES, root, self._comm, None),
        )

    def _all_gather(self, row: Buffer, to: Buffer) -> None:
        count = ctypes.c_size_t(row.num_bytes)
        self._library.call(
            "onecclAllGather", _at(row), _at(to), count, _BYTES, self._comm, None
        )

    def _all_to_all(
        self, row: Buffer, sent: list[int], to: Buffer, received: list[int]
    ) -> None:
        most = self._most_of_all(sent)
        if set(sent) == {most} == set(received):
            self._exchange(row, to)
            return
        mine = scratch(row.dtype, most * self.size)
        theirs = scratch(to.dtype, most * self.size)
        _copy_parts(slices(row, sent), slices(mine, [most] * self.size))
        self._exchange(mine, theirs)
        _copy_parts(slices(theirs, [most] * self.size), slices(to, received))

    def _most_of_all(self, sent: list[int]) -> int:
        """Return the size of the largest part that any rank sends."""
        most = scratch(DType.Int64, 1)
        values(most)[0] = max(sent)
        self._all_reduce(most, _DTYPES[DType.Int64], _OPS["MAX"])
        return int(values(most)[0])

    def _exchange(self, row: Buffer, to: Buffer) -> None:
        """Exchange parts of one size, which is that on all ranks."""
        count = ctypes.c_size_t(row.num_bytes // self.size)
        self._library.call(
            "onecclAllToAll", _at(row), _at(to), count, _BYTES, self._comm, None
        )


def _at(row: Buffer) -> ctypes.c_void_p:
    return ctypes.c_void_p(row.address)


def _copy_parts(parts: list[Buffer], places: list[Buffer]) -> None:
    """Copy each part to the beginning of its place, or the beginning of a part."""
    for part, place in zip(parts, places, strict=True):
        size = min(part.num_bytes, place.num_bytes)
        np.copyto(memory_of(place)[:size], memory_of(part)[:size])
