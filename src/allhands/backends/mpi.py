"""MPI: arrays in CPU memory, moved by the MPI library that mpi4py has loaded.

The core checks the arguments, as for the native engine; MPI's non-blocking operations
do the rest, see `mpi_collectives`. A group is a communicator of MPI's own, so nothing
else that the program does with MPI meets its messages. The world's store tells what
MPI has no word for: who is at which operation, who has left, and that the group broke.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from allhands import _C
from allhands.arrays import as_buffer
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.mpi_collectives import Collective, begin
from allhands.backends.mpi_meeting import Place, meet
from allhands.backends.mpi_memory import as_row, message, pack, scratch, unpack
from allhands.backends.mpi_news import MpiNews
from allhands.backends.mpi_work import Begun, MpiReceive, MpiWork, Subject
from allhands.backends.work import Work
from allhands.errors import CollectiveTimeoutError, DistBackendError
from allhands.options import to_seconds
from allhands.rendezvous.mpi_job import MpiJob, join_mpi_job

__all__ = ["MpiCommunicator", "create"]

_COLLECTIVES = (
    *("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single", "broadcast"),
    *("all_gather", "all_gather_single", "gather", "gather_single", "scatter"),
    *("all_to_all", "all_to_all_single", "scan", "exscan", "barrier"),
)
_FIRST_OWN_TAG = 1 << 31
"""The first of those that no program can use."""
_MOST_LEFT_ALONE = 64
"""Operations that nobody waits for; with more, starting another asks for their end."""


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `registry.make_communicator`. Waits until every member has come to it.

    Raises:
        TypeError: `pg_options` is given; this backend has none.
        RuntimeError: there is no MPI, or this process was not started by its mpiexec.
        DistStoreError: a member did not come in time.
        DistBackendError: MPI could not make the group.
    """
    if pg_options is not None:
        raise TypeError(f"backend {name!r} takes no pg_options, got {pg_options!r}")
    job = join_mpi_job(options.timeout)
    place = meet(job, options)
    return MpiCommunicator(job, place, options)


class MpiCommunicator(Communicator):
    """One rank's end of a group; thread-safe."""

    def __init__(self, job: MpiJob, place: Place, options: CommunicatorOptions) -> None:
        self.job = job
        self.title = (
            f"rank {options.group_rank} (this process) of group {options.group_id!r}"
        )
        self.failure: DistBackendError | None = None
        self._comm = place.comm
        self._own_comm = place.own_comm
        self._news = MpiNews(place.store, options)
        self._timeout = options.timeout
        self._size = options.group_size
        self._num_collectives = 0
        self._most_tag: int = place.comm.Get_attr(job.mpi.TAG_UB)
        self._pending: set[MpiWork] = set()

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        if call.op in _COLLECTIVES:
            start = self._collective
        elif call.op in ("send", "recv"):
            start = self._send if call.op == "send" else self._recv
        else:
            return super().submit(call)
        limit = to_seconds(self._timeout if call.timeout is None else call.timeout)
        with self.job.lock:
            self._check_whole(call.op)
            try:
                work = start(call, limit)
            except self.job.mpi.Exception as error:
                raise self.job.failed(f"{self.title}: {call.op}", error) from error
            self._keep(work)
        if call.async_op:
            return work
        self._finish(work)
        return None

    def set_timeout(self, timeout: timedelta) -> None:
        """See `Communicator.set_timeout`."""
        self._timeout = timeout

    def abort(self, reason: str) -> None:
        """See `Communicator.abort`."""
        self._break(DistBackendError(f"{self.title}: the group was aborted: {reason}"))
        self._news.tell_abort(reason)

    def note_failure(self, reason: str) -> None:
        """See `Communicator.note_failure`."""
        self._news.reason = reason

    def close(self, grace: float) -> None:
        """See `Communicator.close`."""
        if self._comm is None:
            return
        unsent = self._drain(grace if self.failure is None else 0.0)
        left = DistBackendError(f"{self.title} has left the group")
        is_whole = self.failure is None and not self._pending
        self.failure = self.failure or left
        with self.job.lock:
            pending = list(self._pending)
        for work in pending:
            work.fail(left)
        self._news.tell_left(self._num_collectives)
        comm, self._comm = self._comm, None
        if is_whole:
            with self.job.lock:
                comm.Free()
                self._own_comm.Free()
        if unsent:
            raise CollectiveTimeoutError(
                f"{self.title} left after {grace:g} s, but peers have not received: "
                f"{', '.join(map(str, unsent))}"
            )

    def look(self, subject: Subject) -> DistBackendError | None:
        """See `MpiGroup.look`."""
        return self._news.look(self.title, subject)

    def known(self, subject: Subject) -> tuple[str, list[int]]:
        """See `MpiGroup.known`."""
        return self._news.known(subject)

    def forget(self, work: MpiWork) -> None:
        """See `MpiGroup.forget`."""
        self._pending.discard(work)

    def note_failed(self, subject: Subject, error: DistBackendError) -> None:
        """See `MpiGroup.note_failed`: a failed collective breaks the group."""
        if subject.sequence:
            self._break(error)

    def _break(self, error: DistBackendError) -> None:
        if self.failure is None:
            self.failure = type(error)(
                f"{self.title}: the group is broken since: {error}"
            )

    def _check_whole(self, op: str) -> None:
        if self.failure is not None:
            raise type(self.failure)(f"{op}: {self.failure}")

    def _finish(self, work: MpiWork) -> None:
        try:
            work.wait_for(None)
        except DistBackendError:
            raise
        except BaseException as error:  # Ctrl-C: the others shall not wait for us
            reason = f"{work.subject} was interrupted by {type(error).__name__}"
            self.abort(f"{self.title}: {reason}")
            work.fail(DistBackendError(reason))
            raise

    def _keep(self, work: MpiWork) -> None:
        """Until it has ended, whether anybody holds it or not."""
        self._pending.add(work)
        if len(self._pending) > _MOST_LEFT_ALONE:
            self._advance_all()

    def _advance_all(self) -> bool:
        """Let MPI go on with everything; whether something is left."""
        with self.job.lock:
            pending = list(self._pending)
        return not all([work.advance() for work in pending])

    def _drain(self, grace: float) -> list[Subject]:
        """Wait up to `grace` seconds for what is under way; the sends that are left."""
        end = time.monotonic() + grace
        while self._advance_all() and time.monotonic() < end:
            time.sleep(0.0002)
        return [work.subject for work in self._pending if work.subject.op == "send"]

    def _collective(self, call: Call, limit: float) -> MpiWork:
        size, rank = self._size, self._comm.Get_rank()
        checked = _C.CheckedCall(call, rank, size)
        arguments = Collective(self.job.mpi, self._comm, checked, call.reduce_op)
        self._num_collectives += 1
        subject = Subject(call.op, self._num_collectives)
        begun = begin(checked.name, arguments)
        return MpiWork(self, subject, begun, limit, checked.written)

    def _send(self, call: Call, limit: float) -> MpiWork:
        buffer = as_buffer(call.input, writable=False)
        row = as_row([buffer]) or pack([buffer])
        assert call.peer is not None, "a message is sent to one rank"
        comm, tag = self._tagged(call.tag)
        request = comm.Isend(message(self.job.mpi, row), call.peer, tag)
        where = f" to rank {call.peer}, tag {call.tag}"
        subject = Subject("send", 0, call.peer, where)
        begun = Begun([request], lambda: None, (row, call.input))
        return MpiWork(self, subject, begun, limit, [call.input])

    def _recv(self, call: Call, limit: float) -> MpiWork:
        buffer = as_buffer(call.output, writable=True)
        row = as_row([buffer])
        there = row or scratch(buffer.dtype, buffer.count)
        comm, tag = self._tagged(call.tag)
        source = self.job.mpi.ANY_SOURCE if call.peer is None else call.peer
        request = comm.Irecv(message(self.job.mpi, there), source, tag)
        who = "any rank" if call.peer is None else f"rank {call.peer}"
        subject = Subject("recv", 0, call.peer, f" from {who}, tag {call.tag}")

        def end() -> None:
            if row is None:
                unpack(there, [buffer])

        begun = Begun([request], end, (there, buffer, call.output))
        return MpiReceive(self, subject, begun, limit, [call.output], buffer.num_bytes)

    def _tagged(self, tag: int) -> tuple[Any, int]:
        """Where messages of this tag go, and by which tag of MPI's."""
        if tag >= _FIRST_OWN_TAG:
            return self._own_comm, (tag - _FIRST_OWN_TAG) % (self._most_tag + 1)
        if tag > self._most_tag:
            raise ValueError(
                f"tag {tag}: {self.job.library} has tags from 0 to {self._most_tag}"
            )
        return self._comm, tag
