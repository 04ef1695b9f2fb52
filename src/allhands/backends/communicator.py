"""Communicator: carries out the operations of one group.

`submit` is the waist of the package: every operation passes it as a `Call`. A backend
implements only `submit`, `set_timeout`, `abort` and `close`; so does an object in front
of a backend. The method of each operation only makes the Call. A backend with a shorter
path overrides it: the native backend makes no Call and allocates nothing.

These conventions apply to all operations:

- An operation runs at once and returns None. With `async_op` it starts and returns a
  `Work`.
- A time limit of None means the limit of the group (`set_timeout`).
- Ranks are ranks of the group. A peer is in the group; a root may not be.
- Any thread may call an operation. Operations run in the order of the calls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NoReturn, Protocol

from allhands.arrays import Array
from allhands.backends.call import Call
from allhands.backends.observer import Observer
from allhands.backends.request import PersistentRequest, PlainRequest
from allhands.backends.work import CombinedWork, Work
from allhands.options import RedOpType, ReduceOp
from allhands.rendezvous.roster import Roster
from allhands.store import Store

__all__ = ["Communicator", "CommunicatorOptions"]


@dataclass(frozen=True)
class CommunicatorOptions:
    """What a backend needs to know about a group to make a communicator for it."""

    store: Store
    group_rank: int
    group_size: int
    timeout: timedelta
    group_id: str
    global_ranks_in_group: list[int]
    num_alike: int
    """The number of earlier groups of the same ranks."""
    roster: Callable[[], Roster]
    """Returns the world's processes; the first call waits until all ranks have come."""
    world_ranks: Sequence[int] = ()
    """The members' ranks in the world; empty if unknown or if they have none."""
    device_id: Any = None
    """What was passed as `device_id` when the group was made."""
    reduce_order: str = "any"
    """See `NativeOptions`: the group's own order, or that of its parent."""
    divided: Mapping[str, Any] = field(default_factory=dict)
    """What `Communicator.divide` of the parent group has returned."""


class Communicator(Protocol):
    """The operations of one group; see the module."""

    def submit(self, call: Call) -> Work | None:
        """Carry out `call`, or with `call.async_op` start it.

        This default starts a coalesced operation as several, one after the other.

        Raises:
            NotImplementedError: this communicator does not have the operation.
        """
        singles = call.singles()
        if singles is None:
            _refuse(self, call.op)
        with self.together():
            works = [
                _started(self.submit(replace(single, async_op=True)))
                for single in singles
            ]
        work = CombinedWork(works, call.outputs())
        if call.async_op:
            return work
        work.wait()
        return None

    def together(self) -> AbstractContextManager[None]:
        """Return a context in which asynchronous operations may begin as one.

        Then their order does not matter, but none may begin before the context ends.
        With this default each begins at once.
        """
        return nullcontext()

    def prepare(self, call: Call) -> PersistentRequest | None:
        """Return a request that repeats `call`; None where `submit` warns."""
        return PlainRequest(call, self.submit)

    def all_reduce(
        self,
        tensor: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_reduce`."""
        return self.submit(
            Call("all_reduce", tensor, tensor, timeout, async_op, reduce_op=op)
        )

    def reduce(
        self,
        tensor: Array,
        root: int,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce`; `tensor` is written on `root` only."""
        return self.submit(Call("reduce", tensor, tensor, timeout, async_op, root, op))

    def reduce_scatter(
        self,
        output: Array,
        input_list: list[Array],
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter`."""
        return self.submit(
            Call("reduce_scatter", output, input_list, timeout, async_op, reduce_op=op)
        )

    def reduce_scatter_single(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter_single`."""
        return self.submit(
            Call(
                "reduce_scatter_single", output, input, timeout, async_op, reduce_op=op
            )
        )

    def scan(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.scan`."""
        return self.submit(Call("scan", output, input, timeout, async_op, reduce_op=op))

    def exscan(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.exscan`."""
        return self.submit(
            Call("exscan", output, input, timeout, async_op, reduce_op=op)
        )

    def broadcast(
        self, tensor: Array, root: int, timeout: timedelta | None, async_op: bool
    ) -> Work | None:
        """See `allhands.broadcast`; `tensor` is only read on `root`."""
        return self.submit(Call("broadcast", tensor, tensor, timeout, async_op, root))

    def all_gather(
        self,
        tensor_list: list[Array],
        tensor: Array,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_gather`."""
        return self.submit(Call("all_gather", tensor_list, tensor, timeout, async_op))

    def all_gather_single(
        self, output: Array, input: Array, timeout: timedelta | None, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather_single`."""
        return self.submit(Call("all_gather_single", output, input, timeout, async_op))

    def gather(
        self,
        tensor: Array,
        gather_list: list[Array] | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.gather`; only `root` has a list."""
        return self.submit(Call("gather", gather_list, tensor, timeout, async_op, root))

    def gather_single(
        self,
        tensor: Array,
        gather_tensor: Array | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.gather_single`; only `root` has a `gather_tensor`."""
        return self.submit(
            Call("gather_single", gather_tensor, tensor, timeout, async_op, root)
        )

    def scatter(
        self,
        tensor: Array,
        scatter_list: list[Array] | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.scatter`; only `root` has a list."""
        return self.submit(
            Call("scatter", tensor, scatter_list, timeout, async_op, root)
        )

    def all_to_all(
        self,
        output_list: list[Array],
        input_list: list[Array],
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all`."""
        return self.submit(
            Call("all_to_all", output_list, input_list, timeout, async_op)
        )

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_splits: Sequence[int] | None,
        input_splits: Sequence[int] | None,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all_single`; without splits they are equal."""
        return self.submit(
            Call(
                "all_to_all_single",
                output,
                input,
                timeout,
                async_op,
                output_splits=output_splits,
                input_splits=input_splits,
            )
        )

    def barrier(self, timeout: timedelta | None, async_op: bool) -> Work | None:
        """See `allhands.barrier`."""
        return self.submit(Call("barrier", None, None, timeout, async_op))

    def send(
        self, tensor: Array, peer: int, tag: int, timeout: timedelta | None
    ) -> None:
        """See `allhands.send`."""
        self.submit(Call("send", None, tensor, timeout, peer=peer, tag=tag))

    def recv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> int:
        """See `allhands.recv`; returns the sender's group rank. `peer` None: any."""
        work = _started(self.irecv(tensor, peer, tag, timeout))
        work.wait()
        return work.source_rank() if peer is None else peer

    def isend(
        self, tensor: Array, peer: int, tag: int, timeout: timedelta | None
    ) -> Work | None:
        """See `allhands.isend`."""
        return self.submit(
            Call("send", None, tensor, timeout, True, peer=peer, tag=tag)
        )

    def irecv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> Work | None:
        """See `allhands.irecv`; `peer` None means any."""
        return self.submit(
            Call("recv", tensor, None, timeout, True, peer=peer, tag=tag)
        )

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
        """See `allhands.sendrecv`; returns the sender's group rank."""
        received = _started(self.irecv(output, src, recv_tag, timeout))
        self.send(tensor, dst, tag, timeout)
        received.wait()
        return received.source_rank() if src is None else src

    def empty_shared(
        self, shape: tuple[int, ...], dtype: Any, timeout: timedelta | None
    ) -> Array:
        """See `allhands.empty_shared`."""
        _refuse(self, "empty_shared")

    def peer_array(self, array: Array, peer: int) -> Array:
        """See `allhands.peer_array`."""
        _refuse(self, "peer_array")

    def divide(self, parts: list[list[int]], pg_options: Any) -> dict[str, Any]:
        """Let the library divide its group; every rank of the group calls it.

        `parts` are disjoint lists of ranks, and `pg_options` those of the new groups.
        The result is by the backend's name, for the group of the part that this rank is
        in (`CommunicatorOptions.divided`). With this default, and if nothing was
        divided, it is empty: the members of a new group meet by themselves.
        """
        return {}

    @abstractmethod
    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations without a limit of their own.

        The initial limit is that of the `CommunicatorOptions`.
        """

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Break the group on every rank; ranks that wait in it get an error."""

    def observe(self, observer: Observer | None) -> None:
        """Tell `observer` of each later operation; None stops this.

        This default does nothing; a backend that supports observers overrides it.
        """
        return

    def flight_entries(
        self, collectives_after: int = 0, messages_after: int = 0
    ) -> list[dict[str, Any]]:
        """Return the entries of the group's flight recorder, as the native core does.

        It returns collectives and messages with numbers higher than the given ones. A
        backend without a recorder returns none.
        """
        return []

    def counting_apart(self) -> dict[str, Communicator]:
        """Return communicators of the group whose operations have their own numbers.

        They are by the device type that they serve. `flight_entries` leaves their
        entries out. With this default there are none.
        """
        return {}

    def endings(self) -> dict[int, str]:
        """Return the group ranks that aborted the group, with what each told.

        It also returns ranks that died, which told nothing, unless the group is broken.
        It never waits. A backend that cannot tell returns none.
        """
        return {}

    def note_failure(self, reason: str, cause: str) -> None:
        """Note that this rank will `close` because of an exception, the `reason`.

        A backend that can tells its peers. It also tells them the `cause`: the same
        exception as `remote_exception.told` describes it. This default does nothing.
        """
        return

    def check_close(self) -> None:
        """Refuse if this thread must not call `close`; this default never refuses.

        Raises:
            RuntimeError: the thread runs a callback of an operation of the group, for
                whose end `close` would wait.
        """
        return

    @abstractmethod
    def close(self, grace: float) -> None:
        """Leave the group and free its resources. A second call does nothing.

        Queued operations have `grace` seconds to finish.
        """


def _refuse(communicator: Communicator, operation: str) -> NoReturn:
    raise NotImplementedError(
        f"Backend {type(communicator).__name__} does not support {operation}"
    )


def _started(work: Work | None) -> Work:
    assert work is not None, "an asynchronous operation of a backend returns a Work"
    return work
