"""The operations of a process group under torch's names, as methods of `ProcessGroup`.

torch's functions call these methods, and so do programs that hold a group object. All
return a `Work`. Ranks are ranks of the group. torch has two forms of each operation,
and each method here takes both. In the first form, arrays are in lists and come with an
options object, as in `allreduce([x], AllreduceOptions())`. In the second form, a call
passes the arrays themselves and the contents of the options, as in `allreduce(x,
ReduceOp.MAX)`. As in torch, the keyword is `tensors=[x]` in the first form and
`tensor=x` in the second.

The functions of `collectives` and `reductions` describe the operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, ClassVar

from allhands.arrays import Array
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.tag import check_tag
from allhands.backends.work import Work
from allhands.options import CallOptions, RedOpType, ReduceOp

__all__ = ["BackendType", "TorchMethods"]


class BackendType(IntEnum):
    """torch's numbers for backends; the backends of this package are CUSTOM."""

    UNDEFINED = 0
    GLOO = 1
    NCCL = 2
    UCC = 3
    MPI = 4
    XCCL = 5
    CUSTOM = 6


class TorchMethods(ABC):
    """See the module; `ProcessGroup` implements the abstract methods."""

    BackendType: ClassVar = BackendType
    UNDEFINED: ClassVar = BackendType.UNDEFINED
    GLOO: ClassVar = BackendType.GLOO
    NCCL: ClassVar = BackendType.NCCL
    UCC: ClassVar = BackendType.UCC
    MPI: ClassVar = BackendType.MPI
    XCCL: ClassVar = BackendType.XCCL
    CUSTOM: ClassVar = BackendType.CUSTOM

    communicator: Communicator
    """Carries out the operations of this group."""

    @abstractmethod
    def rank(self) -> int:
        """This process's rank in the group."""

    @abstractmethod
    def size(self) -> int:
        """The number of ranks in the group."""

    @abstractmethod
    def peer_meant(self, role: str, peer: int | None, group_peer: int | None) -> int:
        """Return the group rank of a peer; see `ProcessGroup.peer_meant`."""

    def allreduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        tensor: Any = None,
        op: RedOpType | ReduceOp | None = None,
    ) -> Work:
        """See `allhands.all_reduce`; `opts` may be the reduce operation itself."""
        array = _one(tensors, tensor)
        chosen = _chosen(opts, op, "reduceOp", ReduceOp.SUM)
        limit = _limit_of(opts, timeout)
        return _work(self.communicator.all_reduce(array, chosen, limit, True))

    def allreduce_coalesced(self, tensors: list[Array], opts: Any = None) -> Work:
        """See `allhands.all_reduce_coalesced`."""
        chosen = _chosen(opts, None, "reduceOp", ReduceOp.SUM)
        call = Call(
            "all_reduce_coalesced",
            *(tensors, tensors, _limit_of(opts, None), True),
            reduce_op=chosen,
        )
        return _work(self.communicator.submit(call))

    def reduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        op: RedOpType | ReduceOp | None = None,
        timeout: timedelta | None = None,
        *,
        tensor: Any = None,
        root: int | None = None,
    ) -> Work:
        """See `allhands.reduce`; `opts` may be the root itself."""
        array = _one(tensors, tensor)
        chosen = _chosen(
            opts if isinstance(opts, CallOptions) else None, op, "reduceOp"
        )
        target = _chosen(opts, root, "rootRank", 0)
        limit = _limit_of(opts, timeout)
        return _work(self.communicator.reduce(array, target, chosen, limit, True))

    def reduce_scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        output: Any = None,
        input: Any = None,
        op: RedOpType | ReduceOp | None = None,
    ) -> Work:
        """See `allhands.reduce_scatter`; `opts` may be the reduce operation itself."""
        target = _one(output_tensors, output)
        parts = _one_list(input_tensors if input is None else input)
        chosen = _chosen(opts, op, "reduceOp")
        limit = _limit_of(opts, timeout)
        return _work(
            self.communicator.reduce_scatter(target, parts, chosen, limit, True)
        )

    def reduce_scatter_single(
        self, output: Array, input: Array, opts: Any = None
    ) -> Work:
        """See `allhands.reduce_scatter_single`."""
        chosen = _chosen(opts, None, "reduceOp")
        limit = _limit_of(opts, None)
        return _work(
            self.communicator.reduce_scatter_single(output, input, chosen, limit, True)
        )

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[Array], inputs: list[Array], opts: Any = None
    ) -> Work:
        """Run `reduce_scatter_single` for each pair, as one operation."""
        chosen = _chosen(opts, None, "reduceOp")
        call = Call(
            "reduce_scatter_single_coalesced",
            *(outputs, inputs, _limit_of(opts, None), True),
            reduce_op=chosen,
        )
        return _work(self.communicator.submit(call))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def broadcast(
        self,
        tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        tensor: Any = None,
        root: int | None = None,
    ) -> Work:
        """See `allhands.broadcast`; `opts` may be the root itself."""
        array = _one(tensors, tensor)
        source = _chosen(opts, root, "rootRank", 0)
        limit = _limit_of(opts, timeout)
        return _work(self.communicator.broadcast(array, source, limit, True))

    def allgather(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        input_tensor: Any = None,
    ) -> Work:
        """See `allhands.all_gather`."""
        outputs, tensor = _one_list(output_tensors), _one(input_tensors, input_tensor)
        limit = _limit_of(opts, timeout)
        return _work(self.communicator.all_gather(outputs, tensor, limit, True))

    def allgather_coalesced(
        self, output_lists: list[list[Array]], input_list: list[Array], opts: Any = None
    ) -> Work:
        """See `allhands.all_gather_coalesced`."""
        limit = _limit_of(opts, None)
        call = Call("all_gather_coalesced", output_lists, input_list, limit, True)
        return _work(self.communicator.submit(call))

    def all_gather_single(self, output: Array, input: Array, opts: Any = None) -> Work:
        """See `allhands.all_gather_single`."""
        limit = _limit_of(opts, None)
        return _work(self.communicator.all_gather_single(output, input, limit, True))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[Array], inputs: list[Array], opts: Any = None
    ) -> Work:
        """Run `all_gather_single` for each pair, as one operation."""
        limit = _limit_of(opts, None)
        call = Call("all_gather_single_coalesced", outputs, inputs, limit, True)
        return _work(self.communicator.submit(call))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        input_tensor: Any = None,
        root: int | None = None,
    ) -> Work:
        """See `allhands.gather`; `opts` may be the root itself."""
        tensor, outputs = _one(input_tensors, input_tensor), _one_list(output_tensors)
        target = _chosen(opts, root, "rootRank", 0)
        limit = _limit_of(opts, timeout)
        return _work(self.communicator.gather(tensor, outputs, target, limit, True))

    def gather_single(self, output: Array, input: Array, opts: Any = None) -> Work:
        """See `allhands.gather_single`; only the root's `output` is used."""
        root = _chosen(opts, None, "rootRank", 0)
        limit = _limit_of(opts, None)
        mine = output if self.rank() == root else None
        return _work(self.communicator.gather_single(input, mine, root, limit, True))

    gather_into_tensor = gather_single

    def scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        output_tensor: Any = None,
        root: int | None = None,
    ) -> Work:
        """See `allhands.scatter`; `opts` may be the root itself."""
        tensor, inputs = _one(output_tensors, output_tensor), _one_list(input_tensors)
        source = _chosen(opts, root, "rootRank", 0)
        limit = _limit_of(opts, timeout)
        return _work(self.communicator.scatter(tensor, inputs, source, limit, True))

    def alltoall(
        self,
        output_tensors: list[Array],
        input_tensors: list[Array],
        opts: Any = None,
    ) -> Work:
        """See `allhands.all_to_all`."""
        limit = _limit_of(opts, None)
        return _work(
            self.communicator.all_to_all(output_tensors, input_tensors, limit, True)
        )

    def all_to_all_single(
        self,
        output: Array,
        input: Array,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """See `allhands.all_to_all_single`; without split sizes they are equal."""
        limit = _limit_of(opts, timeout)
        return _work(
            self.communicator.all_to_all_single(
                output, input, output_split_sizes, input_split_sizes, limit, True
            )
        )

    alltoall_base = all_to_all_single

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work:
        """See `allhands.isend`."""
        tensor = _one(tensors)
        peer = self.peer_meant("destination", None, dstRank)
        return _work(self.communicator.isend(tensor, peer, check_tag(tag), None))

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work:
        """See `allhands.irecv`."""
        tensor = _one(tensors)
        peer = self.peer_meant("source", None, srcRank)
        return _work(self.communicator.irecv(tensor, peer, check_tag(tag), None))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """See `allhands.irecv`; receives from any rank."""
        tensor = _one(tensors)
        return _work(self.communicator.irecv(tensor, None, check_tag(tag), None))

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """See `allhands.barrier`."""
        limit = _limit_of(opts, timeout)
        return _work(self.communicator.barrier(limit, True))

    @property
    def supports_reconfigure(self) -> bool:
        """Whether `reconfigure` works: False, no backend here supports it."""
        return False

    @property
    def supports_window(self) -> bool:
        """Whether `new_window` works: False, see `empty_shared` instead."""
        return False

    def get_reconfigure_handle(self) -> str:
        """Return the handle that `reconfigure` of other ranks would need.

        Raises:
            RuntimeError: always; see `supports_reconfigure`.
        """
        raise RuntimeError(self._unsupported("get_reconfigure_handle"))

    def reconfigure(self, opts: Any) -> Work:
        """Change the members of this group.

        Raises:
            RuntimeError: always; see `supports_reconfigure`.
        """
        raise RuntimeError(self._unsupported("reconfigure"))

    def new_window(self, tensor: Any = None) -> Any:
        """Make memory that other ranks can read and write.

        Raises:
            RuntimeError: always; see `supports_window`.
        """
        raise RuntimeError(self._unsupported("new_window"))

    @abstractmethod
    def name(self) -> str:
        """The name of the backend."""

    def _unsupported(self, method: str) -> str:
        instead = {
            "new_window": "use empty_shared() and peer_array()",
            "reconfigure": "use shrink_group() or a new group",
            "get_reconfigure_handle": "use shrink_group() or a new group",
        }[method]
        return f"Backend {self.name()} does not support {method}: {instead}"


def _limit_of(opts: Any, timeout: timedelta | None) -> timedelta | None:
    """Return the limit; None means the group's, a negative limit in options."""
    if not isinstance(opts, CallOptions):
        return timeout
    limit = opts.timeout
    is_unset = isinstance(limit, timedelta) and limit < timedelta(0)
    return None if is_unset else limit


def _chosen(opts: Any, given: Any, name: str, default: Any = ReduceOp.SUM) -> Any:
    """`given`, else option `name` of `opts`, else `opts` itself, else `default`."""
    if given is not None:
        return given
    if isinstance(opts, CallOptions):
        return getattr(opts, name)
    return default if opts is None else opts


def _one(tensors: Any, tensor: Any = None) -> Array:
    """Return `tensor` if given, else the array or the only entry of the list."""
    if tensor is not None:
        return tensor
    if not isinstance(tensors, (list, tuple)):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"expected a list of one array, got {len(tensors)} arrays")
    return tensors[0]


def _one_list(tensors: Any) -> list[Array]:
    """Return the list of arrays, or the only entry of a list of such lists."""
    nested = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    return list(tensors[0] if nested else tensors)


def _work(work: Work | None) -> Work:
    assert work is not None, "an asynchronous operation of a backend returns a Work"
    return work
