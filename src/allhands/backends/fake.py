"""A backend that moves nothing: every operation succeeds at once.

For trying out a program's structure for any world size in one process. Outputs keep
what they held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from allhands.arrays import Array, library_of_dtype
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.work import Work
from allhands.options import RedOpType, ReduceOp

__all__ = ["FakeCommunicator", "FakeWork", "create"]


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `backend.make_communicator`; any `pg_options` are fine."""
    return FakeCommunicator()


class FakeWork(Work):
    """Finished from the start."""

    def wait_for(self, timeout: timedelta | None) -> None:
        """Return at once."""

    def is_completed(self) -> bool:
        """Always true."""
        return True

    def exception(self) -> None:
        """Never any."""

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call it now."""
        callback()


class FakeCommunicator(Communicator):
    """See the module."""

    def all_reduce(
        self,
        tensor: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `tensor` as it is."""
        return _done([tensor], async_op)

    def reduce(
        self,
        tensor: Array,
        root: int,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `tensor` as it is."""
        return _done([tensor], async_op)

    def reduce_scatter(
        self,
        output: Array,
        input_list: list[Array],
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `output` as it is."""
        return _done([output], async_op)

    def reduce_scatter_single(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `output` as it is."""
        return _done([output], async_op)

    def broadcast(
        self, tensor: Array, root: int, timeout: timedelta | None, async_op: bool
    ) -> Work | None:
        """Leave `tensor` as it is."""
        return _done([tensor], async_op)

    def all_gather(
        self,
        tensor_list: list[Array],
        tensor: Array,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `tensor_list` as it is."""
        return _done(tensor_list, async_op)

    def all_gather_single(
        self, output: Array, input: Array, timeout: timedelta | None, async_op: bool
    ) -> Work | None:
        """Leave `output` as it is."""
        return _done([output], async_op)

    def gather(
        self,
        tensor: Array,
        gather_list: list[Array] | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `gather_list` as it is."""
        return _done(gather_list or [], async_op)

    def scatter(
        self,
        tensor: Array,
        scatter_list: list[Array] | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `tensor` as it is."""
        return _done([tensor], async_op)

    def all_to_all(
        self,
        output_list: list[Array],
        input_list: list[Array],
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `output_list` as it is."""
        return _done(output_list, async_op)

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_splits: Sequence[int] | None,
        input_splits: Sequence[int] | None,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Leave `output` as it is."""
        return _done([output], async_op)

    def barrier(self, timeout: timedelta | None, async_op: bool) -> Work | None:
        """Wait for nobody."""
        return _done([], async_op)

    def empty_shared(
        self, shape: tuple[int, ...], dtype: Any, timeout: timedelta | None
    ) -> Array:
        """Make an array of this process's own."""
        library = library_of_dtype(dtype)
        itemsize = library.from_bytes(np.empty(0, np.uint8), (0,), dtype).itemsize
        memory = np.zeros(math.prod(shape) * itemsize, np.uint8)
        return library.from_bytes(memory, shape, dtype)

    def peer_array(self, array: Array, peer: int) -> Array:
        """Return `array`."""
        return array

    def send(
        self, tensor: Array, peer: int, tag: int, timeout: timedelta | None
    ) -> None:
        """Send nothing."""

    def recv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> int:
        """Leave `tensor` as it is; from any rank means from rank 0."""
        return peer or 0

    def isend(
        self, tensor: Array, peer: int, tag: int, timeout: timedelta | None
    ) -> Work:
        """Send nothing."""
        return FakeWork([tensor])

    def irecv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> Work:
        """Leave `tensor` as it is."""
        return FakeWork([tensor])

    def sendrecv(
        self,
        tensor: Array,
        dst: int,
        tag: int,
        output: Array,
        src: int | None,
        recv_tag: int,
        timeout: timedelta | None,
    ) -> int:
        """Leave `output` as it is; from any rank means from rank 0."""
        return src or 0

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing."""

    def abort(self, reason: str) -> None:
        """Do nothing."""

    def close(self, grace: float) -> None:
        """Do nothing."""


def _done(outputs: list[Array], async_op: bool) -> Work | None:
    return FakeWork(outputs) if async_op else None
