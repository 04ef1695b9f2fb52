"""Operations as torch's profiler shows them."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.front import FrontCommunicator
from allhands.backends.work import Work

__all__ = ["ProfiledCommunicator"]


class ProfiledCommunicator(FrontCommunicator):
    """Makes events of a profile of the operations that `communicator` carries out.

    They are named as Gloo's are: `gloo:all_reduce`, with the name of the `backend`. An
    event lasts until the operation has ended. One that is not asynchronous has the
    shapes of what it reads, where the profile has shapes; torch takes none for others.
    """

    def __init__(self, communicator: Communicator, backend: str) -> None:
        super().__init__(communicator)
        self._backend = backend

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        # Under whose name torch shows the forms of an operation.
        shown = call.op.removesuffix("_coalesced").removesuffix("_single")
        name = f"{self._backend}:{shown}"
        if not call.async_op:
            with _RecordFunctionFast(name, call.inputs()):
                return self.communicator.submit(call)
        event = profiler.record_function(name)
        with event:
            work = self.communicator.submit(call)
            if work is not None:
                ended: Any = torch.futures.Future()
                event._call_end_callbacks_on_future(ended)
                work.add_done_callback(lambda: ended.set_result(None))
        return work
