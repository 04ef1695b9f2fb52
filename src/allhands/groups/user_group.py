"""UserGroupCommunicator: the communicator of a group with a user's own class.

`Backend.register_backend` takes a function that returns a `ProcessGroup`, as torch's
does: a class that overrides some of the methods with torch's names, such as
`allreduce(tensors, opts)`. The functions of the package reach those methods through
this adapter. The group supports only the methods that the class overrides.

The adapter is as thread-safe as that class.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.work import Work
from allhands.groups.process_group import ProcessGroup
from allhands.options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

__all__ = ["UserGroupCommunicator"]

Spelling: TypeAlias = tuple[Sequence[str], Sequence[Any]]
"""Names of a torch method, newest first, and its arguments; no names: no method."""


class UserGroupCommunicator(Communicator):
    """See the module."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def submit(self, call: Call) -> Work | None:
        """Call the method of the class for this operation."""
        names, arguments = _spelling(call, call.timeout or self._group.timeout)
        kind = type(self._group)
        for name in names:
            method = getattr(kind, name, None)
            if method is not None and method is not getattr(ProcessGroup, name, None):
                work: Work = method(self._group, *arguments)
                if call.async_op:
                    return work
                work.wait()
                return None
        if call.singles() is not None:
            return super().submit(call)
        raise NotImplementedError(
            f"Backend {kind.__name__} does not support {(*names, call.op)[0]}"
        )

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing: the group knows the timeout."""

    def abort(self, reason: str) -> None:
        """Do nothing: the class overrides `abort` if it needs to."""

    def close(self, grace: float) -> None:
        """Do nothing: the class overrides `shutdown` if it needs to."""


def _spelling(call: Call, limit: timedelta) -> Spelling:
    """Return `call` as torch's functions call a group; messages have no limit."""
    output, input = call.output, call.input
    match call.op:
        case "all_reduce":
            options: Any = AllreduceOptions(limit, reduceOp=call.reduce_op)
            return ["allreduce"], [[output], options]
        case "reduce":
            options = ReduceOptions(limit, reduceOp=call.reduce_op, rootRank=call.root)
            return ["reduce"], [[input], options]
        case "reduce_scatter":
            options = ReduceScatterOptions(limit, reduceOp=call.reduce_op)
            return ["reduce_scatter"], [[output], [input], options]
        case "reduce_scatter_single":
            options = ReduceScatterOptions(limit, reduceOp=call.reduce_op)
            names = ["reduce_scatter_single", "_reduce_scatter_base"]
            return names, [output, input, options]
        case "broadcast":
            return ["broadcast"], [
                [output],
                BroadcastOptions(limit, rootRank=call.root),
            ]
        case "all_gather":
            return ["allgather"], [[output], [input], AllgatherOptions(limit)]
        case "all_gather_single":
            names = ["all_gather_single", "_allgather_base"]
            return names, [output, input, AllgatherOptions(limit)]
        case "gather":
            options = GatherOptions(limit, rootRank=call.root)
            return ["gather"], [[output] if output else [], [input], options]
        case "gather_single":
            options = GatherOptions(limit, rootRank=call.root)
            names = ["gather_single", "gather_into_tensor"]
            return names, [output, input, options]
        case "scatter":
            options = ScatterOptions(limit, rootRank=call.root)
            return ["scatter"], [[output], [input] if input else [], options]
        case "all_to_all":
            return ["alltoall"], [output, input, AllToAllOptions(limit)]
        case "all_to_all_single":
            splits = [list(call.output_splits or ()), list(call.input_splits or ())]
            names = ["all_to_all_single", "alltoall_base"]
            return names, [output, input, *splits, AllToAllOptions(limit)]
        case "all_reduce_coalesced":
            options = AllreduceCoalescedOptions(limit, reduceOp=call.reduce_op)
            return ["allreduce_coalesced"], [output, options]
        case "all_gather_coalesced":
            return ["allgather_coalesced"], [output, input, AllgatherOptions(limit)]
        case "all_gather_single_coalesced":
            names = ["all_gather_single_coalesced", "allgather_into_tensor_coalesced"]
            return names, [output, input, AllgatherOptions(limit)]
        case "reduce_scatter_single_coalesced":
            options = ReduceScatterOptions(limit, reduceOp=call.reduce_op)
            names = [
                "reduce_scatter_single_coalesced",
                "reduce_scatter_tensor_coalesced",
            ]
            return names, [output, input, options]
        case "barrier":
            return ["barrier"], [BarrierOptions(limit)]
        case "send":
            return ["send"], [[input], call.peer, call.tag]
        case "recv" if call.peer is None:
            return ["recv_anysource"], [[output], call.tag]
        case "recv":
            return ["recv"], [[output], call.peer, call.tag]
    return [], []  # torch has no method for this operation
