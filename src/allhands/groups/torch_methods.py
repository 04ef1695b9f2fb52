"""torch's methods of `ProcessGroup`: collectives, messages, and what no backend has.

`torch_collectives` describes the forms of their arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, ClassVar

from allhands.backends.communicator import Communicator
from allhands.backends.registry import BackendType
from allhands.backends.tag import check_tag
from allhands.backends.work import Work
from allhands.groups.several_arrays import only
from allhands.groups.torch_collectives import TorchCollectives
from allhands.options import CallOptions, RedOpType, ReduceOp

__all__ = ["TorchMethods"]


class TorchMethods(TorchCollectives[Work], ABC):
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

    @property
    def _communicator(self) -> Communicator:
        try:
            return self.communicator
        except AttributeError:
            raise RuntimeError(
                "No backend type associated with this ProcessGroup: it was not made by "
                "init_process_group or new_group, and its class has no such method"
            ) from None

    def _reduce_op(self, opts: Any, op: Any) -> RedOpType | ReduceOp:
        chosen = getattr(opts, "reduceOp", opts) if op is None else op
        return ReduceOp.SUM if chosen is None else chosen

    def _terms(
        self, opts: Any, timeout: timedelta | None
    ) -> tuple[timedelta | None, bool]:
        if not isinstance(opts, CallOptions):
            return timeout, True
        limit = opts.timeout
        is_unset = isinstance(limit, timedelta) and limit < timedelta(0)
        return None if is_unset else limit, True

    def _started(self, work: Work | None, outputs: list[Any]) -> Work:
        assert work is not None, "an asynchronous operation of a backend returns a Work"
        return work

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work:
        """See `allhands.isend`."""
        tensor = only(tensors)
        peer = self.peer_meant("destination", None, dstRank)
        work = self.communicator.isend(tensor, peer, check_tag(tag), None)
        return self._started(work, [tensor])

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work:
        """See `allhands.irecv`."""
        tensor = only(tensors)
        peer = self.peer_meant("source", None, srcRank)
        work = self.communicator.irecv(tensor, peer, check_tag(tag), None)
        return self._started(work, [tensor])

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """See `allhands.irecv`; receives from any rank."""
        tensor = only(tensors)
        work = self.communicator.irecv(tensor, None, check_tag(tag), None)
        return self._started(work, [tensor])

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
