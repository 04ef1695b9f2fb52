"""Communicator: what a backend makes for one group, with one method per collective.

A backend implements the methods it can do and inherits the rest, which say so. Arrays
come as the caller passed them; a backend takes their memory itself (`arrays.as_buffer`)
since it knows what it can read. Every method

- runs at once and returns None, or with `async_op` starts and returns a `Work`;
- takes its time limit in seconds;
- takes ranks of the group, already checked to lie in it;
- may be called from any thread; operations run in the order of the calls.

To add a collective, add its method here, its function in `collectives` or `reductions`,
and to the backends that can do it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from allhands.arrays import Array
from allhands.identity import Roster
from allhands.options import RedOpType, ReduceOp
from allhands.request import PersistentRequest, PlainRequest
from allhands.store import Store
from allhands.work import Work

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


class Communicator(ABC):
    """The operations of one group; see the module."""

    name: str

    def all_reduce(
        self, tensor: Array, op: RedOpType | ReduceOp, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.all_reduce`."""
        self._refuse("all_reduce")

    def reduce(
        self,
        tensor: Array,
        root: int,
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce`; `tensor` is written on `root` only."""
        self._refuse("reduce")

    def reduce_scatter(
        self,
        output: Array,
        input_list: list[Array],
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter`."""
        self._refuse("reduce_scatter")

    def reduce_scatter_single(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter_single`."""
        self._refuse("reduce_scatter_single")

    def broadcast(
        self, tensor: Array, root: int, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.broadcast`; `tensor` is only read on `root`."""
        self._refuse("broadcast")

    def all_gather(
        self, tensor_list: list[Array], tensor: Array, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather`."""
        self._refuse("all_gather")

    def all_gather_single(
        self, output: Array, input: Array, timeout: float, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather_single`."""
        self._refuse("all_gather_single")

    def gather(
        self,
        tensor: Array,
        gather_list: list[Array],
        root: int,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.gather`; the list is empty on other ranks than `root`."""
        self._refuse("gather")

    def scatter(
        self,
        tensor: Array,
        scatter_list: list[Array],
        root: int,
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.scatter`; the list is empty on other ranks than `root`."""
        self._refuse("scatter")

    def all_to_all(
        self,
        output_list: list[Array],
        input_list: list[Array],
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all`."""
        self._refuse("all_to_all")

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_splits: list[int],
        input_splits: list[int],
        timeout: float,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all_single`; splits are those of the first dimension."""
        self._refuse("all_to_all_single")

    def barrier(self, timeout: float, async_op: bool) -> Work | None:
        """See `allhands.barrier`."""
        self._refuse("barrier")

    def persistent(
        self, operation: str, *arguments: Any, timeout: float
    ) -> PersistentRequest:
        """A request that runs the collective of that name with these `arguments`."""
        call = partial(getattr(self, operation), *arguments, timeout)
        return PlainRequest(operation, call)

    def empty_shared(self, shape: tuple[int, ...], dtype: Any, timeout: float) -> Array:
        """See `allhands.empty_shared`."""
        self._refuse("empty_shared")

    def peer_array(self, array: Array, peer: int) -> Array:
        """See `allhands.peer_array`."""
        self._refuse("peer_array")

    def send(self, tensor: Array, peer: int, tag: int, timeout: float) -> None:
        """See `allhands.send`."""
        self._refuse("send")

    def recv(self, tensor: Array, peer: int | None, tag: int, timeout: float) -> int:
        """See `allhands.recv`; the sender's rank in the group. `peer` None: any."""
        self._refuse("recv")

    def isend(self, tensor: Array, peer: int, tag: int, timeout: float) -> Work:
        """See `allhands.isend`."""
        self._refuse("isend")

    def irecv(self, tensor: Array, peer: int | None, tag: int, timeout: float) -> Work:
        """See `allhands.irecv`; `peer` None: any."""
        self._refuse("irecv")

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
        """See `allhands.sendrecv`; the sender's rank in the group."""
        self._refuse("sendrecv")

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Break the group on every rank; whoever waits in it gets an error."""

    @abstractmethod
    def close(self, grace: float) -> None:
        """Leave the group and free what it holds. A second call does nothing.

        Operations that are queued get `grace` seconds to finish.
        """

    def _refuse(self, operation: str) -> NoReturn:
        raise NotImplementedError(f"Backend {self.name} does not support {operation}")
