"""Operations as events of torch's profiler."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.followed import FollowedWork
from allhands.backends.front import FrontCommunicator
from allhands.backends.work import Work
from allhands.groups.world import World, current
from allhands.torch.identity import NAME

__all__ = ["ProfiledCommunicator", "profiler_events"]


class ProfiledCommunicator(FrontCommunicator):
    """Makes profiler events of the operations that `communicator` carries out.

    See `profiler_events`; the names of these events begin with `backend`.
    """

    def __init__(self, communicator: Communicator, backend: str) -> None:
        super().__init__(communicator)
        self._backend = backend

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        return _submit(self.communicator, call, self._backend)


_lock = threading.Lock()
_num_blocks: Counter[World] = Counter()


@contextmanager
def profiler_events() -> Iterator[None]:
    """Show each operation in a `with` block as an event of `torch.profiler`.

    The profile then shows the operations that the rank issues by this package's own
    functions, in all its groups and from any thread. Operations of torch.distributed on
    backend `allhands` are events even without such a block. The names are like Gloo's:
    `allhands:all_reduce`. An event lasts until the operation has ended. It has the
    shapes of the tensors that the operation reads if the profile records shapes and the
    operation is not asynchronous; torch accepts shapes for no others. An object
    collective shows the operations of which it consists.

    Within the block an operation takes about 4 us longer, and about 10 us longer while
    a profile is taken. Other ranks need no such block. Begin and end the block only
    while none of this rank's operations is under way.

    Example:
        ```python
        with torch.profiler.profile() as profile, dist.torch.profiler_events():
            dist.all_reduce(gradient)
        profile.export_chrome_trace("rank0.json")
        ```
    """
    world = current()
    _count(world, 1)
    try:
        yield
    finally:
        _count(world, -1)


def _count(world: World, more: int) -> None:
    with _lock:
        _num_blocks[world] += more
        if _num_blocks[world] > 0:
            world.surround(_submit)
        else:
            del _num_blocks[world]
            world.surround(None)


def _submit(communicator: Communicator, call: Call, backend: str = NAME) -> Work | None:
    if not profiler._is_profiler_enabled:
        return communicator.submit(call)
    # torch shows all forms of an operation under one name.
    shown = call.op.removesuffix("_coalesced").removesuffix("_single")
    name = f"{backend}:{shown}"
    if not call.async_op:
        with _RecordFunctionFast(name, call.inputs()):
            return communicator.submit(call)
    event = profiler.record_function(name)
    with event:
        work = communicator.submit(call)
        if work is None:
            return None
        ended: Any = torch.futures.Future()
        event._call_end_callbacks_on_future(ended)
    return _ending(work, ended, call)


def _ending(work: Work, ended: Any, call: Call) -> Work:
    """Return `work`, with an event that ends before a wait for it does.

    A program may stop the profile after the wait, which frees the event's memory.
    """

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    try:
        return FollowedWork(work, end, call.outputs(), after_failure=True)
    except NotImplementedError:  # a user's Work that tells nobody: the event ends now
        end()
        return work
