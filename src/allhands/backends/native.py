"""The native engine, which moves arrays in CPU memory between processes.

Processes of one host share memory; processes of different hosts are connected by TCP.
The core's Communicator is the backend's communicator: it takes arrays and operations
from Python directly, see csrc/allhands/python. It also serves programs that name "gloo"
if Gloo is replaced.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, cast

import numpy as np

from allhands import _C, settings
from allhands.arrays import Array, as_buffer, library_of, library_of_dtype
from allhands.arrays.sparse import SparseLibrary
from allhands.backends import flight_memory
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.followed import FollowedWork
from allhands.backends.staged import StagedCommunicator
from allhands.backends.tuned import figures_folder, tuning_changes
from allhands.backends.work import Work
from allhands.options import NativeOptions, RedOpType, ReduceOp
from allhands.rendezvous.log import LogLevel, beginning, is_said
from allhands.rendezvous.ranges import in_world

__all__ = ["NativeCommunicator", "NativeTransfer", "NativeWork", "create"]


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `registry.make_communicator`.

    Raises:
        TypeError: `pg_options` are not `NativeOptions`.
        DistNetworkError: members are on several hosts, and some do not listen for the
            others.
    """
    if not isinstance(pg_options, NativeOptions | None):
        raise TypeError(
            f"backend {name!r} takes NativeOptions as pg_options, got {pg_options!r}"
        )
    return NativeCommunicator(options)


class NativeWork(_C.Work, Work):
    """A queued operation; the native core makes these objects."""

    @property
    def timeout(self) -> timedelta:
        """See `Work.timeout`."""
        return timedelta(seconds=self._limit)

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`; carries out the operation here if it has not begun."""
        self.wait(timeout)


class NativeTransfer(NativeWork):
    """A posted send or receive; the native core makes these objects."""

    def source_rank(self) -> int:
        """See `Work.source_rank`."""
        envelope = self._envelope()
        if envelope is None:
            return super().source_rank()
        if not self.is_completed():
            raise RuntimeError("source_rank(): nothing has come yet; call wait() first")
        return envelope[0]

    def envelope(self) -> tuple[int, int, int]:
        """See `Work.envelope`."""
        envelope = self._envelope()
        if envelope is None:
            return super().envelope()
        if envelope[0] < 0:
            raise RuntimeError("envelope(): nothing has come yet; call wait() first")
        return envelope


class NativeCommunicator(_C.Communicator):
    """One rank's end of a group; thread-safe."""

    def __init__(self, options: CommunicatorOptions) -> None:
        self._group_rank = options.group_rank
        roster = options.roster()
        ranks = options.global_ranks_in_group
        peers = [roster.identities[rank] for rank in ranks]
        host = peers[options.group_rank].host
        super().__init__(
            options.group_rank,
            options.group_size,
            name=options.group_id,
            token=roster.token_for(ranks, options.num_alike),
            peers=peers,
            tuning=tuning_changes([each for each in peers if each.host == host]),
            figures=figures_folder(),
            port=roster.port_for(ranks),
            timeout=options.timeout,
            patience=settings.patience.get() if is_said(LogLevel.WARNING) else 0.0,
            speaker=beginning("waiting", _rank_in_world(options)),
            record_length=settings.record_length.get(),
            flight_memory=flight_memory.here(),
            in_rank_order=options.reduce_order == "rank",
            in_world=in_world(options.world_ranks),
        )

    def all_reduce_sparse(
        self,
        tensor: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """Carry out `all_reduce` of a sparse array; the core calls this method."""
        library = cast(SparseLibrary, library_of(tensor))
        parts = library.parts_of(tensor)
        rows = _C.SparseArray(
            as_buffer(parts.indices, writable=False),
            as_buffer(parts.values, writable=False),
            parts.num_rows,
            parts.width,
        )

        def assign() -> None:
            library.assign_parts(tensor, rows.all_indices, rows.sums)

        work = self.all_reduce_parts(rows, op, timeout, async_op)
        if work is not None:
            return FollowedWork(work, assign, [tensor])
        assign()
        return None

    def counting_apart(self) -> dict[str, Communicator]:
        """See `Communicator.counting_apart`."""
        return {}

    def divide(self, parts: list[list[int]], pg_options: Any) -> dict[str, Any]:
        """See `Communicator.divide`; members of a new group meet by themselves."""
        return {}

    def together(self) -> AbstractContextManager[None]:
        """See `Communicator.together`."""
        return nullcontext()

    @property
    def staged(self) -> StagedCommunicator:
        """Carries out calls with arrays on devices; the core asks for it."""
        return StagedCommunicator(self, self._group_rank)

    def empty_shared(
        self, shape: tuple[int, ...], dtype: Any, timeout: timedelta | None
    ) -> Array:
        """See `Communicator.empty_shared`."""
        library = library_of_dtype(dtype)
        nothing = library.from_bytes(np.empty(0, np.uint8), (0,), dtype)
        element = as_buffer(nothing, writable=True).dtype
        memory = self.shared_bytes(element, shape, timeout)
        return library.from_bytes(memory, shape, dtype)

    def peer_array(self, array: Array, peer: int) -> Array:
        """See `Communicator.peer_array`."""
        memory = self.peer_bytes(as_buffer(array, writable=False), peer)
        return library_of(array).from_bytes(memory, array.shape, array.dtype)


def _rank_in_world(options: CommunicatorOptions) -> int:
    ranks = options.world_ranks
    return ranks[options.group_rank] if ranks else options.group_rank
