"""NcclWork: an operation in a stream of a GPU.

The streams of a GPU order it, so `wait()` lets the current stream wait and returns at
once, as in torch. A thread of the group asks whether the operation has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from allhands.backends.nccl_comm import NcclComm
from allhands.backends.polled_work import Begun, PolledWork

__all__ = ["NcclRequest", "NcclWork"]


class NcclRequest:
    """The end of an operation, as an event in its stream."""

    event: Any = None
    """None until the operation has been passed to the GPU."""

    def __init__(self, comm: NcclComm) -> None:
        self._comm = comm

    def Test(self) -> bool:
        """Return whether the GPU has done the operation; raise NCCL's error of it."""
        if self.event is None or not self.event.is_done:
            return False
        self._comm.check()
        return True

    def block(self) -> None:
        """Wait a moment."""
        time.sleep(0.00005)


class NcclWork(PolledWork):
    """An operation under way on a GPU; any thread may use it."""

    is_for_host = False
    """Whether waiting threads wait for the GPU, not only their streams."""
    let_stream_wait: Callable[[Any], None]
    """Lets the current stream of the calling thread wait for an event."""

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`; without a timeout it lets the current stream wait."""
        [*requests] = self._begun.requests
        if timeout is not None or self.is_for_host or self.advance():
            super().wait_for(timeout)
            return
        for request in requests:
            self.let_stream_wait(request.event)
        # The memory may be used again by what follows in that stream.
        self._begun = Begun(requests, self._begun.end, None)

    def _is_over(self) -> bool:
        # The GPU also leaves what is aborted.
        return self._group.failure is None and super()._is_over()

    def block_current_stream(self) -> None:  # type: ignore[override]
        """Make the current stream of the GPU wait for the operation."""
        if self.is_for_host:
            self.wait_for(None)
        for request in self._begun.requests:
            self.let_stream_wait(request.event)
