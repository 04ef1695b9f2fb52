"""PolledRows: a polled group whose library moves contiguous rows of CPU memory.

The core checks the arguments, as for the native engine. What is not contiguous is
packed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Any

from allhands import _C
from allhands._C import ANY_TAG, Buffer
from allhands.arrays import Array, as_buffer
from allhands.backends.call import Call
from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.polled import COLLECTIVES, PolledCommunicator
from allhands.backends.polled_work import Begun, PolledReceive, PolledWork, Subject
from allhands.backends.rows import as_row, pack, row_to_write
from allhands.backends.work import Work
from allhands.options import RedOpType, ReduceOp
from allhands.store import Store

__all__ = ["PolledRows", "begin_nothing"]


class PolledRows(PolledCommunicator):
    """One rank's end of a group; thread-safe.

    The subclass for a library defines how operations on rows begin: `_begin`,
    `_start_send` and `_start_recv`.
    """

    receive_type: type[PolledReceive] = PolledReceive
    """The class of works for `_start_recv`."""

    def __init__(
        self,
        store: Store,
        options: CommunicatorOptions,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        super().__init__(store, options, lock)
        self._plain_all_reduce: Callable[[Any, Any], Any] = begin_nothing
        """Reduces an array in place if the library takes it as it is.

        It waits a moment for the end, and returns None if the operation is over, what
        becomes a request if it goes on, and NotImplemented if it has not begun. The
        operation has the group's limit.
        """

    @abstractmethod
    def _begin(
        self, checked: _C.CheckedCall, op: RedOpType | ReduceOp, limit: float
    ) -> Begun:
        """Let the library begin a collective."""

    @abstractmethod
    def _start_send(self, row: Buffer, peer: int, tag: int) -> Any:
        """Let the library begin to send; return the request."""

    @abstractmethod
    def _start_recv(self, row: Buffer, peer: int | None, tag: int) -> Any:
        """Let the library begin to receive. `peer` None means any source."""

    def _prepared(self, call: Call) -> Callable[[Call, float], PolledWork] | None:
        """See `PolledCommunicator._prepared`."""
        if call.op not in COLLECTIVES:
            return self._messages().get(call.op)
        checked = _C.CheckedCall(call, self.rank, self.size)
        return partial(self._collective, checked)

    def all_reduce(
        self,
        tensor: Array,
        op: RedOpType | ReduceOp,
        timeout: timedelta | None,
        async_op: bool,
    ) -> Work | None:
        """See `Communicator.all_reduce`. The usual call takes a shorter way."""
        work: Work | None = None
        if not async_op and timeout is None:
            with self.lock:
                if self.failure is None:
                    self._num_collectives += 1
                    try:
                        request = self._plain_all_reduce(tensor, op)
                        if request is None:
                            return None
                        if request is not NotImplemented:
                            work = self._plain_work("all_reduce", request, tensor)
                    except BaseException as error:
                        self._note_interrupted(error, "all_reduce", breaks=True)
                        raise
                    if work is None:
                        self._num_collectives -= 1
        if work is None:
            return super().all_reduce(tensor, op, timeout, async_op)
        self._finish(work)
        return None

    def _plain_work(self, op: str, request: Any, memory: Any) -> PolledWork:
        """Return the Work of a plain collective that did not end in a moment."""
        begun = Begun([self._as_request(request)], _nothing, memory)
        subject = Subject(op, self._num_collectives)
        work = PolledWork(self, subject, begun, self._limit, [])
        self._pending[work] = None
        return work

    def _as_request(self, request: Any) -> Any:
        """Return what `_plain_all_reduce` returned as a request."""
        return request

    def _messages(self) -> dict[str, Callable[[Call, float], PolledWork]]:
        """Return the functions that start the message operations of this library."""
        return {"send": self._send, "recv": self._recv}

    def _collective(
        self, checked: _C.CheckedCall, call: Call, limit: float
    ) -> PolledWork:
        self._num_collectives += 1
        subject = Subject(call.op, self._num_collectives)
        begun = self._begin(checked, call.reduce_op, limit)
        return PolledWork(self, subject, begun, limit, checked.written)

    def _send(self, call: Call, limit: float) -> PolledWork:
        buffer = as_buffer(call.input, writable=False)
        row = as_row([buffer]) or pack([buffer])
        assert call.peer is not None, "a message is sent to one rank"
        request = self._start_send(row, call.peer, call.tag)
        subject = Subject("send", 0, call.peer, f" to rank {call.peer}, tag {call.tag}")
        begun = Begun([request], lambda: None, (row, call.input))
        return PolledWork(self, subject, begun, limit, [call.input])

    def _recv(self, call: Call, limit: float) -> PolledWork:
        buffer = as_buffer(call.output, writable=True)
        row, end = row_to_write([buffer])
        request = self._start_recv(row, call.peer, call.tag)
        begun = Begun([request], end, (row, buffer, call.output))
        subject = self._awaited("recv", call)
        return self.receive_type(self, subject, begun, limit, [call.output])

    def _awaited(self, op: str, call: Call) -> Subject:
        """Describe a message to this rank, for a receive or a probe."""
        who = "any rank" if call.peer is None else f"rank {call.peer}"
        tag = "any tag" if call.tag == ANY_TAG else f"tag {call.tag}"
        return Subject(op, 0, call.peer, f" from {who}, {tag}")


def begin_nothing(array: Any, op: Any) -> Any:
    """Take no array as it is; see `PolledRows`."""
    return NotImplemented


def _nothing() -> None:
    pass
