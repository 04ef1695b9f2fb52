"""The native engine: CPU arrays between processes of one host, through shared memory.

An adapter without policy: the core takes arrays and operations as they come, see
csrc/allhands/python. It also serves programs that ask for "gloo".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from allhands import _C, settings
from allhands.arrays import Array, as_buffer, library_of, library_of_dtype
from allhands.communicator import Communicator, CommunicatorOptions
from allhands.options import RedOpType, ReduceOp
from allhands.request import PersistentRequest
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
        work = self._native.all_reduce(tensor, op, timeout, async_op)
        return work and NativeWork(work, [tensor])

    def reduce(
        self,
        tensor: Array,
        root: int,
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce`."""
        work = self._native.reduce(tensor, root, op, timeout, async_op)
        return work and NativeWork(work, [tensor])

    def reduce_scatter(
        self,
        output: Array,
        input_list: list[Array],
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter`."""
        work = self._native.reduce_scatter(output, input_list, op, timeout, async_op)
        return work and NativeWork(work, [output])

    def reduce_scatter_single(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter_single`."""
        work = self._native.reduce_scatter_single(output, input, op, timeout, async_op)
        return work and NativeWork(work, [output])

    def broadcast(
        self, tensor: Array, root: int, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.broadcast`."""
        work = self._native.broadcast(tensor, root, timeout, async_op)
        return work and NativeWork(work, [tensor])

    def all_gather(
        self, tensor_list: list[Array], tensor: Array, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather`."""
        work = self._native.all_gather(tensor_list, tensor, timeout, async_op)
        return work and NativeWork(work, tensor_list)

    def all_gather_single(
        self, output: Array, input: Array, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather_single`."""
        work = self._native.all_gather_single(output, input, timeout, async_op)
        return work and NativeWork(work, [output])

    def gather(
        self,
        tensor: Array,
        gather_list: list[Array],
        root: int,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.gather`."""
        work = self._native.gather(tensor, gather_list, root, timeout, async_op)
        return work and NativeWork(work, gather_list)

    def scatter(
        self,
        tensor: Array,
        scatter_list: list[Array],
        root: int,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.scatter`."""
        work = self._native.scatter(tensor, scatter_list, root, timeout, async_op)
        return work and NativeWork(work, [tensor])

    def all_to_all(
        self,
        output_list: list[Array],
        input_list: list[Array],
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all`."""
        work = self._native.all_to_all(output_list, input_list, timeout, async_op)
        return work and NativeWork(work, output_list)

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
        work = self._native.all_to_all_single(
            output, input, output_splits, input_splits, timeout, async_op
        )
        return work and NativeWork(work, [output])

    def barrier(self, timeout: float, async_op: bool) -> Work | None:
        """See `allhands.barrier`."""
        work = self._native.barrier(timeout, async_op)
        return work and NativeWork(work, [])

    def persistent(
        self, operation: str, *arguments: Any, timeout: float
    ) -> PersistentRequest:
        """See `Communicator.persistent`."""
        prepare = getattr(self._native, operation)
        request: PersistentRequest = prepare(*arguments, timeout, None)
        return request

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
        self._native.send(tensor, peer, tag, timeout)

    def recv(self, tensor: Array, peer: int | None, tag: int, timeout: float) -> int:
        """See `Communicator.recv`."""
        return self._native.recv(tensor, _source(peer), tag, timeout)

    def isend(self, tensor: Array, peer: int, tag: int, timeout: float) -> Work:
        """See `Communicator.isend`."""
        native = self._native.isend(tensor, peer, tag, timeout)
        return NativeTransfer(native, tensor, is_recv=False)

    def irecv(self, tensor: Array, peer: int | None, tag: int, timeout: float) -> Work:
        """See `Communicator.irecv`."""
        native = self._native.irecv(tensor, _source(peer), tag, timeout)
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
            tensor, dst, tag, output, _source(src), recv_tag, timeout
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


def _source(peer: int | None) -> int:
    return _ANY_SOURCE if peer is None else peer
