"""PolledRows: a polled group whose library moves contiguous rows of CPU memory.

The core checks the arguments, as for the native engine. What is not contiguous is
packed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from allhands import _C
from allhands._C import ANY_TAG, Buffer
from allhands.arrays import Array, as_buffer
from allhands.backends.call import Call
from allhands.backends.polled import COLLECTIVES, PolledCommunicator
from allhands.backends.polled_work import Begun, PolledReceive, PolledWork, Subject
from allhands.backends.rows import as_row, pack, row_to_write
from allhands.backends.work import Work
from allhands.options import RedOpType, ReduceOp, to_seconds

__all__ = ["PolledRows"]


class PolledRows(PolledCommunicator):
    """One rank's end of a group; thread-safe.

    The subclass for a library defines how operations on rows begin: `_begin`,
    `_start_send` and `_start_recv`.
    """

    receive_type: type[PolledReceive] = PolledReceive
    """The class of works for `_start_recv`."""

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
        """See `Communicator.all_reduce`. A plain array takes a shorter way."""
        limit = self._timeout if timeout is None else timeout
        start = None if async_op else self._plain_all_reduce(tensor, op, limit)
        if start is None:
            return super().all_reduce(tensor, op, timeout, async_op)
        self._run_plain("all_reduce", start, limit)
        return None

    def _plain_all_reduce(
        self, tensor: Array, op: RedOpType | ReduceOp, timeout: timedelta
    ) -> Callable[[], Any] | None:
        """Return what `_run_plain` runs, if the library reduces `tensor` as it is."""
        return None

    def _run_plain(self, op: str, start: Callable[[], Any], timeout: timedelta) -> None:
        """Run a collective that needs nothing of this package but a wait.

        `start` begins it and waits a moment for its end. It returns the request, or
        None if the collective has ended. Only a longer wait needs a Work.
        """
        with self.lock:
            self._check_whole(op)
            self._num_collectives += 1
            try:
                request = start()
                if request is None:
                    return
                begun = Begun([request], lambda: None, start)  # that has the memory
                subject = Subject(op, self._num_collectives)
                work = PolledWork(self, subject, begun, to_seconds(timeout), [])
                self._pending[work] = None
            except BaseException as error:
                self._note_interrupted(error, op, breaks=True)
                raise
        self._finish(work)

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
