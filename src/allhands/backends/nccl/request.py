"""NcclRequest: an operation that NCCL has, until the GPU has done it.

A program that passes operations one after the other makes one of these for each, and
nothing else. So it is small, and it is also the entry of the flight recorder. Only what
lasts long, or has a handle, gets a `NcclWork`.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

from allhands._C import Buffer, DType
from allhands.arrays.devices import DeviceLibrary
from allhands.backends.call import Call
from allhands.backends.nccl.comm import NcclComm
from allhands.backends.polled_work import PolledGroup, Subject, UnderWay
from allhands.options import RedOpType, ReduceOp

__all__ = ["NcclGroup", "NcclRequest", "name_of"]

_LONG = 0.25
"""Seconds after which an operation without a handle gets one."""


class NcclGroup(PolledGroup, Protocol):
    """The methods of a group that a request needs."""

    def add_work(self, request: NcclRequest) -> UnderWay:
        """Return a handle of the operation, which takes its place in the group."""


class NcclRequest:
    """An operation in a stream of a GPU; the caller holds the group's lock."""

    __slots__ = (
        *("_comm", "_count", "_dtype", "_ended", "_group", "_is_async", "_issued"),
        *("_peer", "_reduce_op", "_root", "_tag", "_thread", "event"),
        *(
            "is_in_current",
            "library",
            "limit",
            "number",
            "op",
            "start",
            "state",
            "stream",
        ),
    )
    is_for_host = False
    """See `NcclWork`."""

    def __init__(
        self,
        group: NcclGroup,
        comm: NcclComm,
        call: Call,
        array: Buffer | None,
        number: int,
        limit: float,
    ) -> None:
        """`number` is that of the collective, or of the message, in its group.

        `array` is the one on whose size the ranks agree.
        """
        self._group, self._comm = group, comm
        self.op, self._reduce_op = call.op, call.reduce_op
        self._root, self._peer, self._tag = call.root, call.peer, call.tag
        self._is_async, self.number = call.async_op, number
        self._dtype = None if array is None else array.dtype
        self._count = 0 if array is None else array.count
        self._issued, self._thread = time.time_ns(), threading.get_ident()
        self._ended = 0
        self.state = "started"
        self.limit = limit
        self.start = time.monotonic()
        self.library: DeviceLibrary | None = None
        """The library of the arrays on a GPU; None: there are none."""
        self.stream = 0
        """The handle of its stream, which does its operations one after the other."""
        self.is_in_current = False
        """Whether this is the stream that the calling thread used."""
        self.event: Any = None
        """Occurs when the GPU has done it; None until it is passed to the GPU."""

    @property
    def subject(self) -> Subject:
        """How errors name the operation."""
        if self._peer is None:
            return Subject(self.op, self.number)
        return Subject(self.op, 0, self._peer, f" with rank {self._peer}")

    @property
    def is_message(self) -> bool:
        """Whether it has a number of its own."""
        return self.op in ("send", "recv")

    def Test(self) -> bool:
        """Return whether the GPU has done the operation; raise NCCL's error of it."""
        if self.event is None or not self.event.is_done:
            return False
        self._comm.check()
        return True

    def block(self) -> None:
        """Wait a moment."""
        time.sleep(0.00005)

    def is_late(self) -> bool:
        """Return whether the time of the operation is over."""
        return time.monotonic() - self.start >= self.limit

    def advance(self) -> bool:
        """Return whether the operation has ended, or has a handle that says so."""
        with self._group.lock:
            if self.state != "started":
                self._group.forget(self)
                return True
            failure = self._group.failure
            event = self.event
            if failure is None and not (event is not None and event.is_done):
                is_long = time.monotonic() - self.start >= _LONG
                return is_long and self._group.add_work(self).advance()
            self.end(failure)
            self._group.forget(self)
            return True

    def fail(self, error: BaseException) -> None:
        """End the operation now with `error`, unless it has ended."""
        with self._group.lock:
            if self.state == "started":
                self.end(error)
            self._group.forget(self)

    def end(self, error: BaseException | None) -> None:
        """Note that the operation has been seen to have ended."""
        self.state = "completed" if error is None else "failed"
        self._ended = time.time_ns()
        if error is None and self.event is not None:
            self._comm.reuse(self.event)  # who waits for it waits for a later one

    def note_captured(self) -> None:
        """Note that it is in a graph: it has no end, and its event no other use."""
        self.state, self._ended = "completed", time.time_ns()

    def let_stream_wait(self) -> None:
        """Let the current stream of this thread wait for the operation."""
        if self.event is not None:
            assert self.library is not None, "without it, the host waits"
            comm = self._comm
            comm.stream_of(self.library.current_stream(comm.device)).wait(self.event)

    def told(self) -> dict[str, Any]:
        """Return it as `Communicator.flight_entries` does."""
        return {
            "op": self.op,
            "is_message": self.is_message,
            "sequence": self.number,
            "state": self.state,
            "dtype": name_of(self._dtype),
            "count": self._count,
            "reduce_op": _kind(self._reduce_op).name,
            "partner": self._peer if self.is_message else self._root,
            "tag": self._tag,
            "async_op": self._is_async,
            "is_waited_for": False,
            "issued": self._issued,
            "started": self._issued,
            "ended": self._ended or None,
            "thread": self._thread,
        }


def name_of(dtype: DType | None) -> str:
    """Return the name of a dtype, such as "float32"; empty without one."""
    return "" if dtype is None else dtype.name.lower()


def _kind(given: RedOpType | ReduceOp) -> RedOpType:
    return given if isinstance(given, RedOpType) else given.op
