"""A group of torch.distributed whose operations the native engine carries out."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
from torch.autograd import profiler

from allhands.backends.call import Call
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.hooks import HookedCommunicator, Hooks
from allhands.backends.native import NativeCommunicator
from allhands.backends.remote_exception import headline, told
from allhands.backends.work import CombinedWork, Work
from allhands.errors import DistError
from allhands.groups.process_group import GOODBYE_OF_THE_FAILED, LONGEST_GOODBYE
from allhands.groups.world import current
from allhands.options import to_seconds
from allhands.rendezvous.attempt import part_of_this_attempt
from allhands.rendezvous.exchange import exchange
from allhands.store import PrefixStore
from allhands.store.torch_store import TorchStore
from allhands.torch.arguments import limit_of, one, one_list, reduce_op_of, root_of
from allhands.torch.identity import NAME
from allhands.torch.parent import ParentGroup
from allhands.torch.profiled import ProfiledCommunicator
from allhands.torch.uncompiled import uncompiled
from allhands.torch.work import ENDED, TorchWork

__all__ = ["AllhandsProcessGroup"]

_open_groups: weakref.WeakSet[AllhandsProcessGroup] = weakref.WeakSet()


@atexit.register
def _end_groups() -> None:
    """For a program that did not: no thread of theirs may need the GIL any more.

    That takes 10 s at most; where an exception ends the program, half a second: the
    others are to learn soon that this rank is no more.
    """
    error = getattr(sys, "last_value", None)  # an exception that nobody caught
    failure = None if error is None else (headline(error), told(error))
    grace = GOODBYE_OF_THE_FAILED if failure else LONGEST_GOODBYE
    end = time.monotonic() + grace.total_seconds()
    with ExitStack() as ends:
        for group in list(_open_groups):
            ends.callback(_end_group, group, end, failure)


def _end_group(
    group: AllhandsProcessGroup, end: float, failure: tuple[str, str] | None
) -> None:
    with suppress(DistError):  # nobody is left to hear it
        group.end(max(0.0, end - time.monotonic()), failure)


@uncompiled
class AllhandsProcessGroup(ParentGroup):
    """A process group of torch's on the native engine, for CPU tensors.

    The members meet in `store` when the group gets its name, which torch gives it last.
    Ranks are ranks of the group. Any thread may use it, if the members agree on the
    order of operations. Operations return a handle; where `opts.asyncOp` is false they
    have ended by then, and the handle knows no outputs.

    Args:
        store: what the members share.
        rank: this process's rank in the group.
        size: how many ranks the group has.
        timeout: limit of its operations.
        reduce_order: see `allhands.NativeOptions`; for its parts and what it is merged
            into, too.
        world_ranks: the members' ranks in torch's world, where it is known.
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
        # Reentrant: a signal's handler may end the group.
        self._lock = threading.RLock()
        self._engine: NativeCommunicator | None = None
        self._blocks = threading.local()
        self._num_blocks = 0
        self._register_cpu()

    def allreduce(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> TorchWork:
        """See `allhands.all_reduce`; `opts` may be the reduce operation itself."""
        tensor = one(tensors)
        work = self._communicator.all_reduce(
            tensor, reduce_op_of(opts), *self._terms(opts, timeout)
        )
        return self._started(work, [tensor])

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> TorchWork:
        """See `allhands.all_reduce_coalesced`."""
        return self._submit(
            "all_reduce_coalesced", tensors, tensors, opts, reduce_op=reduce_op_of(opts)
        )

    def broadcast(
        self,
        tensors: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> TorchWork:
        """See `allhands.broadcast`; `opts` may be the root itself."""
        tensor = one(tensors)
        work = self._communicator.broadcast(
            tensor, root_of(opts, root), *self._terms(opts, timeout)
        )
        return self._started(work, [tensor])

    def reduce(
        self,
        tensors: Any,
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> TorchWork:
        """See `allhands.reduce`; `opts` may be the root itself."""
        tensor = one(tensors)
        has_op = op is None and hasattr(opts, "reduceOp")
        work = self._communicator.reduce(
            tensor,
            root_of(opts, root),
            reduce_op_of(opts if has_op else op),
            *self._terms(opts, timeout),
        )
        return self._started(work, [tensor])

    def allgather(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """See `allhands.all_gather`."""
        outputs, tensor = one_list(output_tensors), one(input_tensors)
        work = self._communicator.all_gather(
            outputs, tensor, *self._terms(opts, timeout)
        )
        return self._started(work, outputs)

    def allgather_coalesced(
        self, output_lists: list[list[Any]], input_list: list[Any], opts: Any = None
    ) -> TorchWork:
        """See `allhands.all_gather_coalesced`."""
        return self._submit("all_gather_coalesced", output_lists, input_list, opts)

    def all_gather_single(
        self,
        output: Any,
        input: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """See `allhands.all_gather_single`."""
        work = self._communicator.all_gather_single(
            output, input, *self._terms(opts, timeout)
        )
        return self._started(work, [output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[Any], inputs: list[Any], opts: Any = None
    ) -> TorchWork:
        """`all_gather_single` of each pair, as one operation."""
        return self._submit("all_gather_single_coalesced", outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """See `allhands.reduce_scatter`; `opts` may be the reduce operation itself."""
        output, input_list = one(outputs), one_list(inputs)
        work = self._communicator.reduce_scatter(
            output, input_list, reduce_op_of(opts), *self._terms(opts, timeout)
        )
        return self._started(work, [output])

    def reduce_scatter_single(
        self,
        output: Any,
        input: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """See `allhands.reduce_scatter_single`."""
        work = self._communicator.reduce_scatter_single(
            output, input, reduce_op_of(opts), *self._terms(opts, timeout)
        )
        return self._started(work, [output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[Any], inputs: list[Any], opts: Any = None
    ) -> TorchWork:
        """`reduce_scatter_single` of each pair, as one operation."""
        return self._submit(
            "reduce_scatter_single_coalesced",
            *(outputs, inputs, opts),
            reduce_op=reduce_op_of(opts),
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> TorchWork:
        """See `allhands.gather`; only the root has outputs."""
        outputs, tensor = one_list(output_tensors), one(input_tensors)
        work = self._communicator.gather(
            tensor, outputs, root_of(opts, root), *self._terms(opts, timeout)
        )
        return self._started(work, outputs)

    def gather_single(self, output: Any, input: Any, opts: Any = None) -> TorchWork:
        """See `allhands.gather_single`; only the root has an output."""
        root = root_of(opts, None)
        gathered = output if root == self.rank() else None
        work = self._communicator.gather_single(
            input, gathered, root, *self._terms(opts, None)
        )
        return self._started(work, [output])

    gather_into_tensor = gather_single

    def scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> TorchWork:
        """See `allhands.scatter`; only the root has inputs."""
        output, inputs = one(output_tensors), one_list(input_tensors)
        work = self._communicator.scatter(
            output, inputs, root_of(opts, root), *self._terms(opts, timeout)
        )
        return self._started(work, [output])

    def alltoall(
        self,
        output_tensors: list[Any],
        input_tensors: list[Any],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """See `allhands.all_to_all`."""
        work = self._communicator.all_to_all(
            list(output_tensors), list(input_tensors), *self._terms(opts, timeout)
        )
        return self._started(work, output_tensors)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """See `allhands.all_to_all_single`; no split sizes: equal ones."""
        work = self._communicator.all_to_all_single(
            output,
            input,
            output_split_sizes,
            input_split_sizes,
            *self._terms(opts, timeout),
        )
        return self._started(work, [output])

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> TorchWork:
        """See `allhands.barrier`; devices do not matter here."""
        work = self._communicator.barrier(*self._terms(opts, timeout))
        return self._started(work, [])

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """`barrier` that names the ranks which do not come, in either form all."""
        self._communicator.barrier(limit_of(timeout, timeout), False)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> TorchWork:
        """See `allhands.isend`."""
        tensor = one(tensors)
        return self._started(self._communicator.isend(tensor, dst, tag, None), [tensor])

    def recv(self, tensors: Any, src: int, tag: int = 0) -> TorchWork:
        """See `allhands.irecv`."""
        tensor = one(tensors)
        return self._started(self._communicator.irecv(tensor, src, tag, None), [tensor])

    def recv_anysource(self, tensors: Any, tag: int = 0) -> TorchWork:
        """See `allhands.irecv`; from any rank."""
        tensor = one(tensors)
        work = self._communicator.irecv(tensor, None, tag, None)
        return self._started(work, [tensor])

    def _like_this(
        self, store: Any, rank: int, size: int, timeout: timedelta
    ) -> AllhandsProcessGroup:
        return AllhandsProcessGroup(store, rank, size, timeout, self.reduce_order)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations that are given none."""
        to_seconds(timeout)  # refuses what is none
        self._timeout = timeout
        with self._lock:
            if self._engine is not None:
                self._engine.set_timeout(timeout)

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def abort(self) -> None:
        """Break the group for every member; whoever waits in it gets an error."""
        engine = self._engine
        if engine is not None:
            engine.abort("abort() was called")

    def shutdown(self) -> None:
        """Finish what is under way, for 10 s at most, and leave; again: nothing."""
        self.end(LONGEST_GOODBYE.total_seconds())

    def end(self, grace: float, failure: tuple[str, str] | None = None) -> None:
        """`shutdown` that waits `grace` seconds at most.

        The other members are told of the `failure` that ends this one, if one does:
        what `Communicator.note_failure` takes.
        """
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            if failure is not None:
                engine.note_failure(*failure)
            engine.close(min(to_seconds(self._timeout), grace))

    # What follows is torch's own: names that its Python or its C++ calls.

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to do: all members count alike."""

    def _get_sequence_number_for_group(self) -> int:
        return self._num_collectives

    def _start_coalescing(self, device: Any = None) -> None:
        with self._lock:
            if self._block is None:  # or one that an exception left is begun again
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
        """What this thread has started since its `_start_coalescing`."""
        return getattr(self._blocks, "works", None) if self._num_blocks else None

    @property
    def _communicator(self) -> Communicator:
        engine = self._engine
        if engine is None:
            raise RuntimeError(f"group {self._group_name!r} was destroyed")
        carrier: Communicator = engine
        if profiler._is_profiler_enabled:
            carrier = ProfiledCommunicator(engine, self.getBackendName())
        faults = current().fault_point
        if faults.is_asked:
            name = self._group_name
            meet = Hooks(first=lambda told: faults.meet((name,), told.op))
            carrier = HookedCommunicator(carrier, meet)
        return carrier

    def _meet(self) -> None:
        faults = current().fault_point
        faults.read_setting()
        if torch.distributed.is_initialized():
            faults.rank = torch.distributed.get_rank()
        elif not _open_groups:  # this is of all ranks
            faults.rank = self.rank()
        theirs = PrefixStore(NAME, TorchStore(self._torch_store))
        store = part_of_this_attempt(theirs)
        rank, size, limit = self.rank(), self.size(), self._timeout
        operation = f"group {self._group_name!r}"
        self._engine = NativeCommunicator(
            CommunicatorOptions(
                store=store,
                group_rank=rank,
                group_size=size,
                timeout=limit,
                group_id=self._group_name,
                global_ranks_in_group=list(range(size)),
                num_alike=0,
                roster=lambda: exchange(store, rank, size, limit, operation),
                world_ranks=self._world_ranks,
                reduce_order=self.reduce_order,
            )
        )
        _open_groups.add(self)

    def _terms(
        self, opts: Any, timeout: timedelta | None
    ) -> tuple[timedelta | None, bool]:
        """Of a collective that is called: its limit, and whether a wait will follow."""
        self._num_collectives += 1
        is_async = getattr(opts, "asyncOp", True) or self._num_blocks != 0
        return limit_of(opts, timeout), is_async

    def _submit(
        self, op: str, output: list[Any], input: list[Any], opts: Any, **more: Any
    ) -> TorchWork:
        """The same of one without a method of its own."""
        self._num_collectives += 1
        call = Call(op, output, input, limit_of(opts), True, **more)
        return self._started(self._communicator.submit(call), output)

    def _started(self, work: Work | None, outputs: list[Any]) -> TorchWork:
        if work is None:
            return ENDED
        block = self._block
        if block is not None:
            block.append(work)
        return TorchWork(work, outputs, self._overlaps)

    @cached_property
    def _overlaps(self) -> bool:
        """Whether the ranks leave a CPU each to operations under way, as they began."""
        threads_each: int = torch.get_num_threads() + 1
        size: int = self.size()
        return size * threads_each <= len(os.sched_getaffinity(0))
