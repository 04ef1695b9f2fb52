"""AllhandsProcessGroup: a group of torch.distributed on the native engine."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
from torch.autograd import profiler

from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.content_check import content_checked
from allhands.backends.native import NativeCommunicator
from allhands.backends.tag import check_tag
from allhands.backends.work import CombinedWork, Work
from allhands.groups.host_links import HostLinks
from allhands.groups.process_group import LONGEST_GOODBYE
from allhands.groups.several_arrays import only
from allhands.groups.torch_collectives import TorchCollectives
from allhands.groups.world import current
from allhands.options import as_timedelta, to_seconds
from allhands.rendezvous.attempt import part_of_this_attempt
from allhands.rendezvous.exchange import exchange
from allhands.rendezvous.log import LogLevel, say
from allhands.store import PrefixStore
from allhands.store.torch_store import TorchStore
from allhands.torch.arguments import limit_of, reduce_op_of
from allhands.torch.backend import CAN_BE_MADE
from allhands.torch.backendless import serve_without_backend
from allhands.torch.ending import open_groups
from allhands.torch.farewell import Farewell
from allhands.torch.guest import Guest
from allhands.torch.identity import DEVICES, NAME
from allhands.torch.parent import ParentGroup
from allhands.torch.profiled import ProfiledCommunicator
from allhands.torch.uncompiled import uncompiled
from allhands.torch.work import ENDED, TorchWork

__all__ = ["AllhandsProcessGroup"]

uncompiled(TorchCollectives)  # its methods are this class's


@uncompiled
class AllhandsProcessGroup(TorchCollectives[TorchWork], ParentGroup):
    """A process group of torch on the native engine.

    The members meet in `store` when the group gets its name, which torch sets last.
    Ranks are ranks of the group. Any thread may use the group if the members agree on
    the order of operations. Operations return a handle. If `opts.asyncOp` is False, the
    operation has already ended, and the handle has no outputs.

    Args:
        store: the store that the members share.
        rank: this process's rank in the group.
        size: the number of ranks in the group.
        timeout: the limit of its operations.
        reduce_order: see `allhands.NativeOptions`; also for groups split from it or
            merged from it.
        world_ranks: the members' ranks in torch's world, if known.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        reduce_order: str,
        world_ranks: Sequence[int] = (),
    ) -> None:
        super().__init__(store, rank, size, timeout)
        self.reduce_order = reduce_order
        self._world_ranks = world_ranks
        self._num_collectives = 0
        # Reentrant: a signal handler may end the group.
        self._lock = threading.RLock()
        self._engine: Communicator | None = None
        self._links: HostLinks | None = None
        self._guest: Guest | None = None
        self._farewell: Farewell | None = None
        self._blocks = threading.local()
        self._num_blocks = 0
        self._register_devices()

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Run a `barrier` whose error names all ranks that do not come."""
        self._communicator.barrier(limit_of(timeout, timeout), False)

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> TorchWork:
        """See `allhands.isend`."""
        tensor = only(tensors)
        work = self._communicator.isend(tensor, dstRank, check_tag(tag), None)
        return self._started(work, [tensor])

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> TorchWork:
        """See `allhands.irecv`."""
        tensor = only(tensors)
        work = self._communicator.irecv(tensor, srcRank, check_tag(tag), None)
        return self._started(work, [tensor])

    def recv_anysource(self, tensors: Any, tag: int = 0) -> TorchWork:
        """See `allhands.irecv`; receives from any rank."""
        tensor = only(tensors)
        work = self._communicator.irecv(tensor, None, check_tag(tag), None)
        return self._started(work, [tensor])

    def _like_this(
        self, store: Any, rank: int, size: int, timeout: timedelta
    ) -> AllhandsProcessGroup:
        return AllhandsProcessGroup(store, rank, size, timeout, self.reduce_order)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations without a limit of their own."""
        self._timeout = self.options._timeout = as_timedelta(timeout)
        with self._lock:
            if self._engine is not None:
                self._engine.set_timeout(self._timeout)

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def abort(self) -> None:
        """Break the group for every member; ranks that wait in it get an error."""
        engine = self._engine
        if engine is not None:
            engine.abort("abort() was called")

    def shutdown(self) -> None:
        """Finish operations for at most 10 s, and leave; a second call does nothing."""
        self.end(LONGEST_GOODBYE.total_seconds())

    def end(self, grace: float, failure: tuple[str, str] | None = None) -> None:
        """Run `shutdown` with a limit of `grace` seconds.

        If a `failure` ends this rank, it is reported to the other members. It has the
        arguments of `Communicator.note_failure`.
        """
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            if failure is not None:
                engine.note_failure(*failure)
            try:
                engine.close(min(to_seconds(self._timeout), grace))
            finally:
                guest, self._guest = self._guest, None  # it holds the engine
                if guest is not None:
                    current().remove_guest(guest)
                if self._farewell is not None:
                    self._farewell.say(grace if failure is None else 0.0)

    # The rest is for torch: methods that its Python or C++ code calls.

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: all members count alike."""

    def _get_sequence_number_for_group(self) -> int:
        return self._num_collectives

    def _start_coalescing(self, device: Any = None) -> None:
        with self._lock:
            # an exception may have left a block, which then begins anew
            if self._block is None:
                self._num_blocks += 1
        self._blocks.works = []

    def _end_coalescing(self, device: Any = None) -> TorchWork:
        works, self._blocks.works = self._block, None
        if works is None:
            raise RuntimeError("_end_coalescing() without _start_coalescing()")
        with self._lock:
            self._num_blocks -= 1
        return TorchWork(CombinedWork(works, []), [])

    @property
    def _block(self) -> list[Work] | None:
        """The works that this thread has started since its `_start_coalescing`."""
        return getattr(self._blocks, "works", None) if self._num_blocks else None

    @property
    def _communicator(self) -> Communicator:
        carrier = self._engine
        if carrier is None:
            raise RuntimeError(f"group {self._group_name!r} was destroyed")
        if profiler._is_profiler_enabled:
            carrier = ProfiledCommunicator(carrier, self.getBackendName())
        faults = current().fault_point
        if faults.asked:
            names = (self._group_name,)
            carrier = faults.in_front_of(carrier, names, self._links)
        return carrier

    def _meet(self) -> None:
        world, faults = current(), current().fault_point
        is_world = not (torch.distributed.is_initialized() or open_groups)
        has_world = torch.distributed.is_initialized()
        of_others = torch.distributed.get_rank() if has_world else faults.rank
        world.begin_guests(self.rank() if is_world else of_others)
        theirs = TorchStore(self._torch_store)
        store = part_of_this_attempt(PrefixStore(NAME, theirs))
        rank, size, limit = self.rank(), self.size(), self._timeout
        roster = exchange(store, rank, size, limit, f"group {self._group_name!r}")
        self._links = HostLinks(roster, rank, self._world_ranks)
        if is_world:
            faults.check(self._links)
            world.meet_guests(roster)
            is_served_here = theirs.is_served_here
            self._farewell = Farewell(store, is_served_here, roster.mark, rank, size)
        options = CommunicatorOptions(
            store=store,
            group_rank=rank,
            group_size=size,
            timeout=limit,
            group_id=self._group_name,
            global_ranks_in_group=list(range(size)),
            num_alike=0,
            roster=lambda: roster,
            world_ranks=self._world_ranks,
            reduce_order=self.reduce_order,
        )
        self._engine = content_checked(NativeCommunicator(options), options)
        open_groups.add(self)
        if self._world_ranks:  # otherwise the members are unknown
            ranks = tuple(self._world_ranks)
            self._guest = Guest(self, self._engine, ranks, is_world)
            world.add_guest(self._guest)
        text = f"made group {self._group_name!r}, one of torch's, of {size} ranks"
        say(LogLevel.INFO, "groups", faults.rank, text)

    _reduce_op = staticmethod(reduce_op_of)

    def _terms(
        self, opts: Any, timeout: timedelta | None
    ) -> tuple[timedelta | None, bool]:
        self._num_collectives += 1
        is_async = getattr(opts, "asyncOp", True) or self._num_blocks != 0
        return limit_of(opts, timeout), is_async

    def _started(self, work: Work | None, outputs: list[Any]) -> TorchWork:
        if work is None:
            return ENDED
        block = self._block
        if block is not None:
            block.append(work)
        return TorchWork(work, outputs, self._overlaps)

    @cached_property
    def _overlaps(self) -> bool:
        """Whether ranks, at their start, left a CPU each for operations under way."""
        threads_each: int = torch.get_num_threads() + 1
        size: int = self.size()
        return size * threads_each <= len(os.sched_getaffinity(0))


if not CAN_BE_MADE:
    serve_without_backend(AllhandsProcessGroup, *DEVICES)
