"""Communicator: what a backend makes for one group, with one method per collective.

A backend implements the methods it can do and inherits the rest, which say so. Arrays,
lists and split sizes come as the caller passed them: a backend takes their memory
itself (`arrays.as_buffer`) since it knows what it can read, and refuses what it cannot.
Every method

- runs at once and returns None, or with `async_op` starts and returns a `Work`;
- takes its time limit, None for that of the group (`set_timeout`);
- takes ranks of the group; a peer lies in it, a root may not;
- may be called from any thread; operations run in the order of the calls.

To add a collective, add its method here, its function in `collectives` or `reductions`,
and to the backends that can do it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, Protocol

from allhands.arrays import Array
from allhands.backends.request import PersistentRequest, PlainRequest
from allhands.backends.work import Work
from allhands.options import RedOpType, ReduceOp
from allhands.rendezvous.roster import Roster
from allhands.store import Store

__all__ = ["Communicator", "CommunicatorOptions"]


@dataclass(frozen=True)
class CommunicatorOptions:
    """What a backend is told about the group that it makes a communicator for."""

    store: Store
    group_rank: int
    group_size: int
    timeout: timedelta
    group_id: str
    global_ranks_in_group: list[int]
    num_alike: int
    """How many groups of the same ranks were made before."""
    roster: Callable[[], Roster]
    """The world's processes; its first call waits until all ranks have come."""


class Communicator(Protocol):
    """The operations of one group; see the module."""

    def all_reduce(
        self,
        tensor: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_reduce`."""
        _refuse(self, "all_reduce")

    def reduce(
        self,
        tensor: Array,
        root: int,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce`; `tensor` is written on `root` only."""
        _refuse(self, "reduce")

    def reduce_scatter(
        self,
        output: Array,
        input_list: list[Array],
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter`."""
        _refuse(self, "reduce_scatter")

    def reduce_scatter_single(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter_single`."""
        _refuse(self, "reduce_scatter_single")

    def broadcast(
        self, tensor: Array, root: int, timeout: timedelta | None, async_op: bool
    ) -> Work | None:
        """See `allhands.broadcast`; `tensor` is only read on `root`."""
        _refuse(self, "broadcast")

    def all_gather(
        self,
        tensor_list: list[Array],
        tensor: Array,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_gather`."""
        _refuse(self, "all_gather")

    def all_gather_single(
        self, output: Array, input: Array, timeout: timedelta | None, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather_single`."""
        _refuse(self, "all_gather_single")

    def gather(
        self,
        tensor: Array,
        gather_list: list[Array] | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.gather`; only `root` has a list."""
        _refuse(self, "gather")

    def scatter(
        self,
        tensor: Array,
        scatter_list: list[Array] | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.scatter`; only `root` has a list."""
        _refuse(self, "scatter")

    def all_to_all(
        self,
        output_list: list[Array],
        input_list: list[Array],
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all`."""
        _refuse(self, "all_to_all")

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_splits: Sequence[int] | None,
        input_splits: Sequence[int] | None,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all_single`; None or no splits: equal ones."""
        _refuse(self, "all_to_all_single")

    def barrier(self, timeout: timedelta | None, async_op: bool) -> Work | None:
        """See `allhands.barrier`."""
        _refuse(self, "barrier")

    def persistent(
        self, operation: str, *arguments: Any, timeout: timedelta | None
    ) -> PersistentRequest:
        """A request that runs the collective of that name with these `arguments`."""
        call = partial(getattr(self, operation), *arguments, timeout)
        return PlainRequest(operation, call)

    def empty_shared(
        self, shape: tuple[int, ...], dtype: Any, timeout: timedelta | None
    ) -> Array:
        """See `allhands.empty_shared`."""
        _refuse(self, "empty_shared")

    def peer_array(self, array: Array, peer: int) -> Array:
        """See `allhands.peer_array`."""
        _refuse(self, "peer_array")

    def send(
        self, tensor: Array, peer: int, tag: int, timeout: timedelta | None
    ) -> None:
        """See `allhands.send`."""
        _refuse(self, "send")

    def recv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> int:
        """See `allhands.recv`; the sender's rank in the group. `peer` None: any."""
        _refuse(self, "recv")

    def isend(
        self, tensor: Array, peer: int, tag: int, timeout: timedelta | None
    ) -> Work:
        """See `allhands.isend`."""
        _refuse(self, "isend")

    def irecv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> Work:
        """See `allhands.irecv`; `peer` None: any."""
        _refuse(self, "irecv")

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
        """See `allhands.sendrecv`; the sender's rank in the group."""
        _refuse(self, "sendrecv")

    @abstractmethod
    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations that are given none.

        At first it is that of the `CommunicatorOptions`.
        """

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Break the group on every rank; whoever waits in it gets an error."""

    def note_failure(self, reason: str) -> None:
        """This rank is about to `close` because of an exception, which is `reason`.

        A backend that can tells its peers; here it does nothing.
        """
        return

    @abstractmethod
    def close(self, grace: float) -> None:
        """Leave the group and free what it holds. A second call does nothing.

        Operations that are queued get `grace` seconds to finish.
        """


def _refuse(communicator: Communicator, operation: str) -> NoReturn:
    raise NotImplementedError(
        f"Backend {type(communicator).__name__} does not support {operation}"
    )
