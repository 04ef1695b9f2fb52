"""The native engine: CPU arrays between processes of one host, through shared memory.

An adapter without policy: it takes the memory of arrays and hands it to
`_C.Communicator`. It also serves programs that ask for "gloo".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from allhands import _C, settings
from allhands._C import Buffer, DType
from allhands.arrays import Array, as_buffer, library_of, library_of_dtype
from allhands.communicator import Communicator, CommunicatorOptions
from allhands.options import RedOpType, ReduceOp
from allhands.work import Work

__all__ = ["NativeCommunicator", "NativeWork", "create"]


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `backend.make_communicator`.

    Raises:
        TypeError: `pg_options` is given; this backend has none.
        DistBackendError: a member is on another host.
    """
    if pg_options is not None:
        raise TypeError(f"backend {name!r} takes no pg_options, got {pg_options!r}")
    return NativeCommunicator(name, options)


class NativeWork(Work):
    """A queued operation of the native core."""

    def __init__(self, native: _C.Work, outputs: list[Array]) -> None:
        super().__init__(outputs)
        self._native = native

    def wait_for(self, seconds: float | None) -> None:
        """See `Work.wait_for`."""
        self._native.wait(seconds)

    def is_completed(self) -> bool:
        """See `Work.is_completed`."""
        return self._native.is_completed()

    def exception(self) -> BaseException | None:
        """See `Work.exception`."""
        return self._native.exception()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """See `Work.add_done_callback`."""
        self._native.add_done_callback(callback)


class NativeTransfer(NativeWork):
    """A posted send or receive of the native core."""

    _native: _C.Transfer

    def __init__(self, native: _C.Transfer, tensor: Array, is_recv: bool) -> None:
        super().__init__(native, [tensor])
        self._is_recv = is_recv

    def source_rank(self) -> int:
        """See `Work.source_rank`."""
        if not self._is_recv:
            return super().source_rank()
        if not self.is_completed():
            raise RuntimeError("source_rank(): nothing has come yet; call wait() first")
        return self._native.peer


class NativeCommunicator(Communicator):
    """One rank's end of a group; thread-safe."""

    def __init__(self, name: str, options: CommunicatorOptions) -> None:
        roster = options.roster()
        ranks = options.global_ranks_in_group
        self.name = name
        self._rank = options.group_rank
        self._native = _C.Communicator(
            options.group_rank,
            options.group_size,
            name=options.group_id,
            token=roster.token_for(ranks, options.num_alike),
            peers=[roster.identities[rank] for rank in ranks],
            tuning=settings.tuning.get(),
        )

    def all_reduce(
        self, tensor: Array, op: RedOpType | ReduceOp, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.all_reduce`."""
        buffer = as_buffer(tensor, writable=True)
        kind, factor = _reduction("all_reduce", op, buffer)
        native = self._native.all_reduce(
            buffer, buffer, kind, factor, timeout, async_op
        )
        return None if native is None else NativeWork(native, [tensor])

    def reduce(
        self,
        tensor: Array,
        root: int,
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce`."""
        buffer = as_buffer(tensor, writable=root == self._rank)
        kind, factor = _reduction("reduce", op, buffer)
        native = self._native.reduce(buffer, root, kind, factor, timeout, async_op)
        return None if native is None else NativeWork(native, [tensor])

    def reduce_scatter(
        self,
        output: Array,
        input_list: list[Array],
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter`."""
        target = as_buffer(output, writable=True, name="output")
        sources = _buffers("input_list", input_list, writable=False)
        _check_same_dtype(target, *sources)
        kind, factor = _reduction("reduce_scatter", op, target)
        native = self._native.reduce_scatter(
            target, sources, kind, factor, timeout, async_op
        )
        return None if native is None else NativeWork(native, [output])

    def reduce_scatter_single(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter_single`."""
        target = as_buffer(output, writable=True, name="output")
        source = as_buffer(input, writable=False, name="input")
        _check_same_dtype(source, target)
        kind, factor = _reduction("reduce_scatter_single", op, target)
        native = self._native.reduce_scatter_single(
            target, source, kind, factor, timeout, async_op
        )
        return None if native is None else NativeWork(native, [output])

    def broadcast(
        self, tensor: Array, root: int, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.broadcast`."""
        buffer = as_buffer(tensor, writable=root != self._rank)
        native = self._native.broadcast(buffer, root, timeout, async_op)
        return None if native is None else NativeWork(native, [tensor])

    def all_gather(
        self, tensor_list: list[Array], tensor: Array, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather`."""
        input = as_buffer(tensor, writable=False)
        outputs = _buffers("tensor_list", tensor_list, writable=True)
        _check_same_dtype(input, *outputs)
        native = self._native.all_gather(outputs, input, timeout, async_op)
        return None if native is None else NativeWork(native, tensor_list)

    def all_gather_single(
        self, output: Array, input: Array, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather_single`."""
        target = as_buffer(output, writable=True, name="output_tensor")
        source = as_buffer(input, writable=False, name="input_tensor")
        _check_same_dtype(source, target)
        native = self._native.all_gather_single(target, source, timeout, async_op)
        return None if native is None else NativeWork(native, [output])

    def gather(
        self,
        tensor: Array,
        gather_list: list[Array],
        root: int,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.gather`."""
        input = as_buffer(tensor, writable=False)
        outputs = _buffers("gather_list", gather_list, writable=True)
        _check_same_dtype(input, *outputs)
        native = self._native.gather(outputs, input, root, timeout, async_op)
        return None if native is None else NativeWork(native, gather_list)

    def scatter(
        self,
        tensor: Array,
        scatter_list: list[Array],
        root: int,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.scatter`."""
        output = as_buffer(tensor, writable=True)
        inputs = _buffers("scatter_list", scatter_list, writable=False)
        _check_same_dtype(output, *inputs)
        native = self._native.scatter(output, inputs, root, timeout, async_op)
        return None if native is None else NativeWork(native, [tensor])

    def all_to_all(
        self,
        output_list: list[Array],
        input_list: list[Array],
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all`."""
        outputs = _buffers("output_tensor_list", output_list, writable=True)
        inputs = _buffers("input_tensor_list", input_list, writable=False)
        _check_same_dtype(*inputs, *outputs)
        native = self._native.all_to_all(outputs, inputs, timeout, async_op)
        return None if native is None else NativeWork(native, output_list)

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_splits: list[int],
        input_splits: list[int],
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all_single`."""
        target = as_buffer(output, writable=True, name="output")
        source = as_buffer(input, writable=False, name="input")
        _check_same_dtype(source, target)
        native = self._native.all_to_all_single(
            target,
            source,
            _counts(output, output_splits),
            _counts(input, input_splits),
            timeout,
            async_op,
        )
        return None if native is None else NativeWork(native, [output])

    def barrier(self, timeout: float, async_op: bool) -> Work | None:
        """See `allhands.barrier`."""
        native = self._native.barrier(timeout, async_op)
        return None if native is None else NativeWork(native, [])

    def empty_shared(self, shape: tuple[int, ...], dtype: Any, timeout: float) -> Array:
        """See `Communicator.empty_shared`."""
        library = library_of_dtype(dtype)
        nothing = library.from_bytes(np.empty(0, np.uint8), (0,), dtype)
        element = as_buffer(nothing, writable=True).dtype
        memory = self._native.empty_shared(element, shape, timeout)
        return library.from_bytes(memory, shape, dtype)

    def peer_array(self, array: Array, peer: int) -> Array:
        """See `Communicator.peer_array`."""
        memory = self._native.peer_bytes(as_buffer(array, writable=False), peer)
        return library_of(array).from_bytes(memory, array.shape, array.dtype)

    def send(self, tensor: Array, peer: int, tag: int, timeout: float) -> None:
        """See `Communicator.send`."""
        self._native.send(as_buffer(tensor, writable=False), peer, tag, timeout)

    def recv(self, tensor: Array, peer: int | None, tag: int, timeout: float) -> int:
        """See `Communicator.recv`."""
        source = _ANY_SOURCE if peer is None else peer
        return self._native.recv(as_buffer(tensor, writable=True), source, tag, timeout)

    def isend(self, tensor: Array, peer: int, tag: int, timeout: float) -> Work:
        """See `Communicator.isend`."""
        buffer = as_buffer(tensor, writable=False)
        native = self._native.isend(buffer, peer, tag, timeout)
        return NativeTransfer(native, tensor, is_recv=False)

    def irecv(self, tensor: Array, peer: int | None, tag: int, timeout: float) -> Work:
        """See `Communicator.irecv`."""
        buffer = as_buffer(tensor, writable=True)
        source = _ANY_SOURCE if peer is None else peer
        native = self._native.irecv(buffer, source, tag, timeout)
        return NativeTransfer(native, tensor, is_recv=True)

    def sendrecv(
        self,
        tensor: Array,
        dst: int,
        tag: int,
        output: Array,
        src: int | None,
        recv_tag: int,
        timeout: float,
    ) -> int:
        """See `Communicator.sendrecv`."""
        return self._native.sendrecv(
            as_buffer(tensor, writable=False),
            dst,
            tag,
            as_buffer(output, writable=True, name="output"),
            _ANY_SOURCE if src is None else src,
            recv_tag,
            timeout,
        )

    def abort(self, reason: str) -> None:
        """See `Communicator.abort`."""
        self._native.abort(reason)

    def disagree(self, reason: str) -> None:
        """`abort`, but with `CollectiveMismatchError` on every rank."""
        self._native.disagree(reason)

    def close(self, grace: float) -> None:
        """See `Communicator.close`."""
        self._native.close(grace)


_ANY_SOURCE = -1
_COMPLEX = (DType.Complex64, DType.Complex128)
_FLOATING = (DType.Float16, DType.BFloat16, DType.Float32, DType.Float64, *_COMPLEX)


def _reduction(
    operation: str, op: RedOpType | ReduceOp, buffer: Buffer
) -> tuple[int, float]:
    """The core's number and factor for `op`, which must suit the buffer's dtype."""
    kind: Any = op if type(op) is RedOpType else getattr(op, "op", None)
    if type(kind) is not RedOpType:
        raise TypeError(
            f"{operation}: op must be an allhands.ReduceOp, got {op!r} of type "
            f"{type(op).__module__}.{type(op).__qualname__}"
        )
    if kind < RedOpType.MIN:  # SUM, AVG, PRODUCT go with every dtype
        return kind, 1.0
    if kind is RedOpType.PREMUL_SUM:
        if isinstance(op, RedOpType):
            raise TypeError(
                f"{operation}: PREMUL_SUM needs a factor: ReduceOp.PREMUL_SUM(0.5)"
            )
        return kind, op.factor
    if kind < RedOpType.BAND:
        if buffer.dtype in _COMPLEX:
            raise ValueError(f"{operation} does not support {kind} on complex tensors")
    elif buffer.dtype in _FLOATING:
        raise RuntimeError(
            f"Cannot use ReduceOp.{kind.name} with non-integral dtype: {operation} got "
            f"{buffer.dtype.name.lower()}"
        )
    return kind, 1.0


def _buffers(name: str, tensors: list[Array], *, writable: bool) -> list[Buffer]:
    return [as_buffer(tensor, writable=writable, name=name) for tensor in tensors]


def _check_same_dtype(first: Buffer, *others: Buffer) -> None:
    for other in others:
        if other.dtype != first.dtype:
            raise ValueError(
                f"Invalid usage of tensors with different dtypes: found "
                f"{first.dtype.name.lower()} and {other.dtype.name.lower()}"
            )


def _counts(array: Array, splits: list[int]) -> list[int]:
    """Numbers of elements for numbers of rows."""
    row = math.prod(array.shape[1:])
    return [split * row for split in splits]
