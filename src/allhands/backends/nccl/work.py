"""NcclWork: the handle of an operation in a stream of a GPU.

The streams of a GPU order it, so `wait()` lets the current stream wait and returns at
once, as in torch. A thread of the group asks whether the operation has ended.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from allhands.backends.nccl.request import NcclRequest
from allhands.backends.polled_work import Begun, PolledGroup, PolledWork
from allhands.errors import DistBackendError

__all__ = ["CapturedWork", "NcclWork"]


class NcclWork(PolledWork):
    """An operation under way on a GPU; any thread may use it."""

    def __init__(
        self,
        group: PolledGroup,
        request: NcclRequest,
        begun: Begun,
        outputs: list[Any],
        is_for_host: bool,
    ) -> None:
        super().__init__(group, request.subject, begun, request.limit, outputs)
        self._start = request.start
        self._request = request
        self.is_for_host = is_for_host
        """Whether waiting threads wait for the GPU, not only their streams."""
        self.stream = request.stream
        """See `NcclRequest`."""
        self.is_late = request.is_late

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`; without a timeout it lets the current stream wait."""
        is_broken = self._group.failure is not None
        if timeout is not None or self.is_for_host or self._is_ended or is_broken:
            super().wait_for(timeout)
            return
        self._request.let_stream_wait()
        # The memory may be used again by what follows in that stream.
        self._begun = self._begun._replace(memory=None)

    def block_current_stream(self) -> None:  # type: ignore[override]
        """Make the current stream of the GPU wait for the operation."""
        if self.is_for_host:
            self.wait_for(None)
        else:
            self._request.let_stream_wait()

    def _is_over(self) -> bool:
        # The GPU also leaves what is aborted.
        return self._group.failure is None and super()._is_over()

    def _settle(self, error: DistBackendError | None) -> None:
        self._request.end(error)
        super()._settle(error)


class CapturedWork(NcclWork):
    """The handle of an operation in a graph, which has no end of its own.

    It is complete at once: what is captured after `wait()` follows it in the graph.
    """

    def __init__(
        self, group: PolledGroup, request: NcclRequest, memory: Any, outputs: list[Any]
    ) -> None:
        begun = Begun([], _nothing, memory)
        super().__init__(group, request, begun, outputs, False)
        self._is_ended = True

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`: the current stream waits, in the graph."""
        self._request.let_stream_wait()
        # The memory may be used again by what follows in that stream.
        self._begun = self._begun._replace(memory=None)

    def advance(self) -> bool:
        """See `PolledWork.advance`."""
        self._group.forget(self)
        return True


def _nothing() -> None:
    pass
