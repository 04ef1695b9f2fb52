"""Operations as torch's profiler shows them."""

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
from allhands.backends.front import FrontCommunicator
from allhands.backends.work import Work
from allhands.groups.world import World, current
from allhands.torch.identity import NAME

__all__ = ["ProfiledCommunicator", "profiler_events"]


class ProfiledCommunicator(FrontCommunicator):
    """Makes events of a profile of the operations that `communicator` carries out.

    See `profiler_events`; they have the name of the `backend`.
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
    """Within the `with` block each operation is an event of `torch.profiler`.

    It shows the operations that the rank issues by this package's own functions, in
    all its groups and from any thread. Those of torch.distributed on backend `allhands`
    are such events without it. The names are like Gloo's: `allhands:all_reduce`. An
    event lasts until the operation has ended. It has the shapes of the tensors that the
    operation reads if the profile records shapes and the operation is not asynchronous;
    torch takes none for others. An object collective shows the operations that it is
    made of.

    Within the block an operation takes some 4 us longer, and some 10 us while a profile
    is taken. Other ranks need not know of it. The block begins and ends while none of
    this rank's operations is under way.

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
    # Under whose name torch shows the forms of an operation.
    shown = call.op.removesuffix("_coalesced").removesuffix("_single")
    name = f"{backend}:{shown}"
    if not call.async_op:
        with _RecordFunctionFast(name, call.inputs()):
            return communicator.submit(call)
    event = profiler.record_function(name)
    with event:
        work = communicator.submit(call)
        if work is not None:
            ended: Any = torch.futures.Future()
            event._call_end_callbacks_on_future(ended)
            work.add_done_callback(lambda: ended.set_result(None))
    return work
