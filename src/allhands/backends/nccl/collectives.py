"""The collectives and messages by functions of NCCL, on contiguous memory of one GPU.

NCCL moves any dtype as bytes. Lists of arrays that are not adjacent in memory become
several broadcasts, reductions or messages in one group of NCCL, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from allhands._C import Buffer, CheckedCall, DType
from allhands.backends.call import Call
from allhands.backends.nccl.call import NcclCall
from allhands.backends.nccl.comm import NcclComm
from allhands.backends.rows import as_row, overlaps
from allhands.options import RedOpType, ReduceOp

__all__ = ["check_reduction", "enqueue"]

_BYTES = 1
_DTYPES = {
    **{DType.Bool: 1, DType.Int8: 0, DType.UInt8: 1, DType.Int32: 2, DType.UInt32: 3},
    **{DType.Int64: 4, DType.UInt64: 5, DType.Float16: 6, DType.BFloat16: 9},
    **{DType.Float32: 7, DType.Float64: 8, DType.Complex64: 7, DType.Complex128: 8},
}
"""NCCL's numbers of the dtypes that it reduces; complex numbers are two real ones."""
_COMPLEX = (DType.Complex64, DType.Complex128)
_SUM, _PRODUCT, _MAX, _MIN, _AVG = range(5)
_OPS = {
    **{RedOpType.SUM: _SUM, RedOpType.PRODUCT: _PRODUCT, RedOpType.MAX: _MAX},
    **{RedOpType.MIN: _MIN, RedOpType.AVG: _AVG},
}
_OPS_OF_BOOL = {
    **dict.fromkeys((RedOpType.SUM, RedOpType.MAX, RedOpType.BOR), _MAX),
    **dict.fromkeys((RedOpType.PRODUCT, RedOpType.MIN, RedOpType.BAND), _MIN),
}
_OPS_OF_COMPLEX = {RedOpType.SUM: _SUM, RedOpType.AVG: _AVG}
_SCALARS = {
    **{DType.Float16: np.float16, DType.Float32: np.float32},
    **{DType.Float64: np.float64, DType.Complex64: np.float32},
    **{DType.Complex128: np.float64, DType.Int8: np.int8, DType.UInt8: np.uint8},
    **{DType.Int32: np.int32, DType.UInt32: np.uint32, DType.Int64: np.int64},
    DType.UInt64: np.uint64,
}


def check_reduction(given: RedOpType | ReduceOp, dtype: DType) -> None:
    """Check that NCCL has the operation for elements of this dtype.

    Raises:
        NotImplementedError: it does not.
    """
    kind = _kind(given)
    if dtype is DType.Bool:
        has_op = kind in _OPS_OF_BOOL
    else:
        known = _OPS_OF_COMPLEX if dtype in _COMPLEX else _OPS
        has_op = kind in known or kind is RedOpType.PREMUL_SUM
    if not has_op or dtype not in _DTYPES:
        raise NotImplementedError(
            f"NCCL has no {kind.name} of {dtype.name}; backend native has all of them"
        )


def _send(comm: NcclComm, row: Buffer, peer: int, stream: int) -> None:
    """Pass NCCL a message to a rank of `comm`."""
    if row.count:
        arguments = row.address, row.num_bytes, _BYTES, peer
        comm.nccl.send(*arguments, comm.handle, stream)


def _recv(comm: NcclComm, row: Buffer, peer: int, stream: int) -> None:
    """Pass NCCL a receive from a rank of `comm`."""
    if row.count:
        arguments = row.address, row.num_bytes, _BYTES, peer
        comm.nccl.recv(*arguments, comm.handle, stream)


def enqueue(
    comm: NcclComm,
    checked: CheckedCall | None,
    moved: Call,
    arrays: NcclCall,
    stream: int,
) -> None:
    """Pass an operation to NCCL; only a message has nothing `checked`."""
    if checked is not None:
        op, copy_of = moved.reduce_op, arrays.copy_of
        _Collective(comm, checked, op, stream, copy_of).enqueue()
        return
    assert moved.peer is not None, "NCCL's messages name their peer"
    peer = comm.members.index(moved.peer)
    if moved.op == "send":
        _send(comm, moved.input, peer, stream)
    else:
        _recv(comm, moved.output, peer, stream)


class _Collective:
    """One collective of NCCL on this rank, in a stream."""

    def __init__(
        self,
        comm: NcclComm,
        checked: CheckedCall,
        op: RedOpType | ReduceOp,
        stream: int,
        copy_of: Callable[[Buffer], Buffer],
    ) -> None:
        self._comm = comm
        self._nccl = comm.nccl
        self._checked = checked
        self._given = op
        self._stream = stream
        self._copy_of = copy_of

    def enqueue(self) -> None:
        """Pass it to NCCL."""
        getattr(self, self._checked.name)()

    def broadcast(self) -> None:
        """See `allhands.broadcast`."""
        [row] = self._checked.inputs
        self._broadcast(row, row, self._checked.root)

    def all_reduce(self) -> None:
        """See `allhands.all_reduce`."""
        [row] = self._checked.inputs
        self._nccl.all_reduce(row.address, row.address, *self._reduced(row))

    def reduce(self) -> None:
        """See `allhands.reduce`."""
        [row] = self._checked.inputs
        self._reduce(row, row, self._checked.root)

    def all_gather(self) -> None:
        """See `allhands.all_gather`."""
        [row] = self._checked.inputs
        parts = self._checked.outputs
        mine = parts[self._comm.rank].address
        row = self._apart(row, parts, mine)
        whole = _equal_row(parts)
        if whole is not None:
            self._nccl.all_gather(
                *(row.address, whole.address, row.num_bytes, _BYTES),
                *(self._comm.handle, self._stream),
            )
            return
        with self._grouped():
            for root, part in enumerate(parts):
                self._broadcast(row if root == self._comm.rank else part, part, root)

    def reduce_scatter(self) -> None:
        """See `allhands.reduce_scatter`."""
        parts = self._checked.inputs
        [to] = self._checked.outputs
        whole = _equal_row(parts)
        if whole is not None:
            in_place = to.address - self._comm.rank * to.num_bytes
            whole = self._apart(whole, [to], in_place)
            self._nccl.reduce_scatter(whole.address, to.address, *self._reduced(to))
            return
        parts = [self._apart(part, [to]) for part in parts]
        with self._grouped():
            for root, part in enumerate(parts):
                is_mine = root == self._comm.rank
                self._reduce(part, to if is_mine else part, root)

    def gather(self) -> None:
        """See `allhands.gather`."""
        [row] = self._checked.inputs
        root, parts = self._checked.root, self._checked.outputs
        row = self._apart(row, parts)
        with self._grouped():
            self._send(row, root)
            for peer, part in enumerate(parts):  # there are none but on the root
                self._recv(part, peer)

    def scatter(self) -> None:
        """See `allhands.scatter`."""
        [to] = self._checked.outputs
        parts = [self._apart(part, [to]) for part in self._checked.inputs]
        with self._grouped():
            for peer, part in enumerate(parts):
                self._send(part, peer)
            self._recv(to, self._checked.root)

    def all_to_all(self) -> None:
        """See `allhands.all_to_all`."""
        outputs = self._checked.outputs
        inputs = [self._apart(part, outputs) for part in self._checked.inputs]
        with self._grouped():
            for peer, (sent, received) in enumerate(zip(inputs, outputs, strict=True)):
                self._send(sent, peer)
                self._recv(received, peer)

    def _send(self, row: Buffer, peer: int) -> None:
        _send(self._comm, row, peer, self._stream)

    def _recv(self, row: Buffer, peer: int) -> None:
        _recv(self._comm, row, peer, self._stream)

    def _broadcast(self, row: Buffer, to: Buffer, root: int) -> None:
        self._nccl.broadcast(
            *(row.address, to.address, to.num_bytes, _BYTES, root),
            *(self._comm.handle, self._stream),
        )

    def _reduce(self, row: Buffer, to: Buffer, root: int) -> None:
        count, dtype, op, comm, stream = self._reduced(row)
        self._nccl.reduce(row.address, to.address, count, dtype, op, root, comm, stream)

    def _reduced(self, row: Buffer) -> tuple[int, int, int, Any, int]:
        """Return the last arguments of a reduction with this result."""
        count = row.count * (2 if row.dtype in _COMPLEX else 1)
        op = self._op(row.dtype)
        return count, _DTYPES[row.dtype], op, self._comm.handle, self._stream

    def _op(self, dtype: DType) -> int:
        kind = _kind(self._given)
        if dtype is DType.Bool:
            return _OPS_OF_BOOL[kind]
        if kind is not RedOpType.PREMUL_SUM:
            return _OPS[kind]
        assert isinstance(self._given, ReduceOp), "only an object has a factor"
        scalar = _scalar(self._given.factor, dtype)
        return self._comm.premultiplied(scalar, _DTYPES[dtype])

    def _apart(
        self, row: Buffer, written: Sequence[Buffer], in_place: int = -1
    ) -> Buffer:
        """Return `row`, or a copy if it shares memory with what is written.

        NCCL allows that at the address `in_place`.
        """
        shares = row.address != in_place and any(overlaps(row, w) for w in written)
        return self._copy_of(row) if shares else row

    @contextmanager
    def _grouped(self) -> Iterator[None]:
        """Let NCCL carry out what is called in the context as one."""
        self._nccl.group_start()
        try:
            yield
        finally:
            self._nccl.group_end()


def _kind(given: RedOpType | ReduceOp) -> RedOpType:
    return given if isinstance(given, RedOpType) else given.op


def _scalar(factor: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """Return a factor as one number of the dtype in CPU memory."""
    if dtype is not DType.BFloat16:
        return np.array([factor], _SCALARS[dtype])
    bits = np.array([factor], np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, ties to even
    return (rounded >> 16).astype(np.uint16)


def _equal_row(parts: Sequence[Buffer]) -> Buffer | None:
    """Return parts of one size as a row if they are adjacent in memory; else None."""
    return as_row(parts) if len({part.count for part in parts}) == 1 else None
