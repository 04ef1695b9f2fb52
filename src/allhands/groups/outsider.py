"""OUTSIDER: the group for `GroupMember.NON_GROUP_MEMBER`, on a rank outside a group.

It has the methods of a group, so no operation has to test for it. Its ranks and sizes
are -1. An operation on it warns and does nothing.
"""

from __future__ import annotations

import warnings
from datetime import timedelta

from allhands.arrays import Array
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.request import PersistentRequest
from allhands.backends.work import Work
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import current

__all__ = ["OUTSIDER", "warn_outsider"]


def warn_outsider(operation: str, stacklevel: int = 3) -> None:
    """Warn that `operation` runs on a rank outside its group."""
    world = current().default
    rank = -1 if world is None else world.rank()
    warnings.warn(
        f"Running {operation} on global rank {rank} which does not belong to the given "
        f"group.",
        UserWarning,
        stacklevel=stacklevel,
    )


class _OutsiderCommunicator(Communicator):
    """Warns. The caller of a public function is two or three frames above."""

    def submit(self, call: Call) -> Work | None:
        name = call.op.removesuffix("_status")
        is_message = name in ("send", "recv") and call.async_op
        warn_outsider(f"i{name}" if is_message else name, stacklevel=5)
        return None

    def prepare(self, call: Call) -> PersistentRequest | None:
        warn_outsider(f"{call.op}_init", stacklevel=4)
        return None

    def recv(
        self, tensor: Array, peer: int | None, tag: int, timeout: timedelta | None
    ) -> int:
        warn_outsider("recv", stacklevel=4)
        return -1

    def set_timeout(self, timeout: timedelta) -> None:
        pass

    def abort(self, reason: str) -> None:
        pass

    def close(self, grace: float) -> None:
        pass


class _Outsider(ProcessGroup):
    """A group of size -1, in which every rank is -1."""

    def __init__(self) -> None:
        super().__init__(-1, -1)
        self.communicator = _OutsiderCommunicator()

    def rank_meant(
        self, rank: int | None, group_rank: int | None, default: int | None = None
    ) -> int:
        return -1

    def peer_meant(self, role: str, rank: int | None, group_rank: int | None) -> int:
        return -1

    def global_rank(self, group_rank: int) -> int:
        return -1


OUTSIDER = _Outsider()
