"""The communicator of a group whose class is a user's own.

`Backend.register_backend` takes a function that returns a `ProcessGroup`, as torch's
does: a class that overrides some of the methods in torch's spelling, such as
`allreduce(tensors, opts)`. The functions of the package reach those methods through
this adapter. What the class leaves alone it cannot do.

As thread-safe as that class.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from allhands.arrays import Array
from allhands.backends.communicator import Communicator
from allhands.backends.work import Work
from allhands.groups.process_group import ProcessGroup
from allhands.options import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    RedOpType,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

__all__ = ["OwnGroupCommunicator"]


class OwnGroupCommunicator(Communicator):
    """See the module."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def all_reduce(
        self,
        tensor: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_reduce`."""
        options = AllreduceOptions(self._limit(timeout), reduceOp=op)
        return self._run(async_op, ["allreduce"], [tensor], options)

    def reduce(
        self,
        tensor: Array,
        root: int,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce`."""
        options = ReduceOptions(self._limit(timeout), reduceOp=op, rootRank=root)
        return self._run(async_op, ["reduce"], [tensor], options)

    def reduce_scatter(
        self,
        output: Array,
        input_list: list[Array],
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter`."""
        options = ReduceScatterOptions(self._limit(timeout), reduceOp=op)
        return self._run(async_op, ["reduce_scatter"], [output], [input_list], options)

    def reduce_scatter_single(
        self,
        output: Array,
        input: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.reduce_scatter_single`."""
        options = ReduceScatterOptions(self._limit(timeout), reduceOp=op)
        names = ["reduce_scatter_single", "_reduce_scatter_base"]
        return self._run(async_op, names, output, input, options)

    def broadcast(
        self, tensor: Array, root: int, timeout: timedelta | None, async_op: bool
    ) -> Work | None:
        """See `allhands.broadcast`."""
        options = BroadcastOptions(self._limit(timeout), rootRank=root)
        return self._run(async_op, ["broadcast"], [tensor], options)

    def all_gather(
        self,
        tensor_list: list[Array],
        tensor: Array,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_gather`."""
        options = AllgatherOptions(self._limit(timeout))
        return self._run(async_op, ["allgather"], [tensor_list], [tensor], options)

    def all_gather_single(
        self, output: Array, input: Array, timeout: timedelta | None, async_op: bool
    ) -> Work | None:
        """See `allhands.all_gather_single`."""
        options = AllgatherOptions(self._limit(timeout))
        names = ["all_gather_single", "_allgather_base"]
        return self._run(async_op, names, output, input, options)

    def gather(
        self,
        tensor: Array,
        gather_list: list[Array] | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.gather`."""
        options = GatherOptions(self._limit(timeout), rootRank=root)
        outputs = [gather_list] if gather_list else []
        return self._run(async_op, ["gather"], outputs, [tensor], options)

    def scatter(
        self,
        tensor: Array,
        scatter_list: list[Array] | None,
        root: int,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.scatter`."""
        options = ScatterOptions(self._limit(timeout), rootRank=root)
        inputs = [scatter_list] if scatter_list else []
        return self._run(async_op, ["scatter"], [tensor], inputs, options)

    def all_to_all(
        self,
        output_list: list[Array],
        input_list: list[Array],
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all`."""
        options = AllToAllOptions(self._limit(timeout))
        return self._run(async_op, ["alltoall"], output_list, input_list, options)

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_splits: Sequence[int] | None,
        input_splits: Sequence[int] | None,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `allhands.all_to_all_single`."""
        options = AllToAllOptions(self._limit(timeout))
        names = ["all_to_all_single", "alltoall_base"]
        splits = [
            [] if sizes is None else list(sizes)
            for sizes in (output_splits, input_splits)
        ]
        return self._run(async_op, names, output, input, *splits, options)

    def barrier(self, timeout: timedelta | None, async_op: bool) -> Work | None:
        """See `allhands.barrier`."""
        return self._run(async_op, ["barrier"], BarrierOptions(self._limit(timeout)))

    def send(
        self, tensor: Array, peer: int, tag: int, timeout: timedelta | None
    ) -> None:
        """See `allhands.send`; the class knows no limit of one call."""
        self.isend(tensor, peer, tag, timeout).wait()

    def recv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> int:
        """See `allhands.recv`; the class knows no limit of one call."""
        work = self.irecv(tensor, peer, tag, timeout)
        work.wait()
        return work.source_rank() if peer is None else peer

    def isend(
        self, tensor: Array, peer: int, tag: int, timeout: timedelta | None
    ) -> Work:
        """See `allhands.isend`."""
        return _started(self._run(True, ["send"], [tensor], peer, tag))

    def irecv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> Work:
        """See `allhands.irecv`."""
        if peer is None:
            return _started(self._run(True, ["recv_anysource"], [tensor], tag))
        return _started(self._run(True, ["recv"], [tensor], peer, tag))

    def set_timeout(self, timeout: timedelta) -> None:
        """Nothing: the group knows it."""

    def abort(self, reason: str) -> None:
        """Nothing: the class overrides `abort` where it has something to do."""

    def close(self, grace: float) -> None:
        """Nothing: the class overrides `shutdown` where it has something to do."""

    def _run(self, async_op: bool, names: list[str], *arguments: Any) -> Work | None:
        """Call the first of the methods that the class has of its own."""
        kind = type(self._group)
        for name in names:
            method = getattr(kind, name, None)
            if method is not None and method is not getattr(ProcessGroup, name, None):
                work: Work = method(self._group, *arguments)
                if async_op:
                    return work
                work.wait()
                return None
        raise NotImplementedError(
            f"Backend {kind.__name__} does not support {names[0]}"
        )

    def _limit(self, timeout: timedelta | None) -> timedelta:
        return self._group.timeout if timeout is None else timeout


def _started(work: Work | None) -> Work:
    assert work is not None, "send and recv of torch's groups return a Work"
    return work
