"""Hooks: user functions that see the operations of a group.

The names are those of torch.distributed. While a group has hooks, a
`HookedCommunicator` stands in front of its communicator. Without hooks, operations run
none of this code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

from allhands.arrays import Array
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.front import FrontCommunicator
from allhands.backends.work import Work
from allhands.errors import (
    CollectiveMismatchError,
    ContentMismatchError,
    DistBackendError,
)

__all__ = ["HookOpName", "HookedCommunicator", "Hooks", "PostHookArgs", "PreHookArgs"]


class HookOpName(IntEnum):
    """The operation that a hook is told of."""

    SEND = 0
    RECV = 1
    BROADCAST = 2
    ALLREDUCE = 3
    REDUCE = 4
    ALLGATHER = 5
    REDUCE_SCATTER = 6
    ALLTOALL = 7
    BARRIER = 8
    SCATTER = 9
    GATHER = 10
    SPLIT = 11
    NEW_WINDOW = 12
    ALLREDUCE_COALESCED = 13
    ALLGATHER_BASE = 14
    ALLGATHER_COALESCED = 15
    ALLGATHER_INTO_TENSOR_COALESCED = 16
    REDUCE_SCATTER_BASE = 17
    REDUCE_SCATTER_TENSOR_COALESCED = 18
    ALLTOALL_BASE = 19
    UNKNOWN = 20
    """An operation that torch does not have; `PreHookArgs.op` has its name."""


_NAMES = {
    "send": HookOpName.SEND,
    "recv": HookOpName.RECV,
    "recv_status": HookOpName.RECV,
    "broadcast": HookOpName.BROADCAST,
    "all_reduce": HookOpName.ALLREDUCE,
    "reduce": HookOpName.REDUCE,
    "all_gather": HookOpName.ALLGATHER,
    "reduce_scatter": HookOpName.REDUCE_SCATTER,
    "all_to_all": HookOpName.ALLTOALL,
    "barrier": HookOpName.BARRIER,
    "scatter": HookOpName.SCATTER,
    "gather": HookOpName.GATHER,
    "all_reduce_coalesced": HookOpName.ALLREDUCE_COALESCED,
    "all_gather_single": HookOpName.ALLGATHER_BASE,
    "all_gather_coalesced": HookOpName.ALLGATHER_COALESCED,
    "all_gather_single_coalesced": HookOpName.ALLGATHER_INTO_TENSOR_COALESCED,
    "reduce_scatter_single": HookOpName.REDUCE_SCATTER_BASE,
    "reduce_scatter_single_coalesced": HookOpName.REDUCE_SCATTER_TENSOR_COALESCED,
    "all_to_all_single": HookOpName.ALLTOALL_BASE,
}


@dataclass(frozen=True)
class PreHookArgs:
    """The argument of a pre-hook, before an operation begins."""

    name: HookOpName
    op: str
    """The name of the public function."""
    async_op: bool
    input_tensors: list[Array]
    output_tensors: list[Array]
    root: int
    """-1 if the operation has no root; the peer of a message."""
    op_id: int
    """The post-hook of this operation gets the same number."""


@dataclass(frozen=True)
class PostHookArgs:
    """The argument of a post-hook, after an operation has begun or ended."""

    name: HookOpName
    op: str
    async_op: bool
    work: Work | None
    """None if the operation is not asynchronous."""
    op_id: int


Around: TypeAlias = Callable[[Communicator, Call], Work | None]
PreHook: TypeAlias = Callable[[PreHookArgs], Any]
PostHook: TypeAlias = Callable[[PostHookArgs], Any]
AbortHook: TypeAlias = Callable[[], Any]


@dataclass
class Hooks:
    """The hooks of a group by the users' ids; called in the order of registration."""

    first: PreHook | None = None
    """The package's own hook, before those of users."""
    around: Around | None = None
    """The package's own; it carries out the call with the communicator."""
    before: dict[int, PreHook] = field(default_factory=dict)
    after: dict[int, PostHook] = field(default_factory=dict)
    on_abort: dict[int, AbortHook] = field(default_factory=dict)
    ids: itertools.count[int] = field(default_factory=itertools.count)

    def __bool__(self) -> bool:
        own = self.first or self.around
        return bool(own or self.before or self.after or self.on_abort)

    def abort(self) -> None:
        """Call the abort hooks: the group is about to break."""
        for hook in list(self.on_abort.values()):
            hook()


class HookedCommunicator(FrontCommunicator):
    """Tells `hooks` of each operation that `communicator` carries out.

    If a pre-hook raises an error, the operation does not begin on this rank. To the
    peers this rank is one that does not come.
    """

    def __init__(self, communicator: Communicator, hooks: Hooks) -> None:
        super().__init__(communicator)
        self._hooks = hooks

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        name = _NAMES.get(call.op, HookOpName.UNKNOWN)
        op_id = next(self._hooks.ids)
        told = PreHookArgs(
            name,
            call.op,
            call.async_op,
            _flat(call.inputs()),
            _flat(call.outputs()),
            call.root if call.peer is None else call.peer,
            op_id,
        )
        if self._hooks.first is not None:
            self._hooks.first(told)
        for hook in list(self._hooks.before.values()):
            hook(told)
        try:
            work = self._carry_out(call)
        except DistBackendError as error:
            self._failed(error)
            raise
        if work is not None and self._hooks.on_abort:
            self._watch(work)
        for after in list(self._hooks.after.values()):
            after(PostHookArgs(name, call.op, call.async_op, work, op_id))
        return work

    def abort(self, reason: str) -> None:
        """See `Communicator.abort`; it calls the abort hooks first."""
        self._hooks.abort()
        super().abort(reason)

    def _carry_out(self, call: Call) -> Work | None:
        around = self._hooks.around
        if around is None:
            return self.communicator.submit(call)
        return around(self.communicator, call)

    def _watch(self, work: Work) -> None:
        def look() -> None:
            error = work.exception()
            if error is not None:
                self._failed(error)

        # a user's Work that tells nobody of its end
        with suppress(NotImplementedError):
            work.add_done_callback(look)

    def _failed(self, error: BaseException) -> None:
        works_on = CollectiveMismatchError, ContentMismatchError
        if not isinstance(error, works_on):
            self._hooks.abort()


def _flat(arrays: list[Any]) -> list[Array]:
    """Return the arrays of a list, or of a list of lists."""
    parts = [part if isinstance(part, list) else [part] for part in arrays]
    return [array for part in parts for array in part]
