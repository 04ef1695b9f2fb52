"""Backend `mpi`: the MPI library that mpi4py has loaded moves arrays in CPU memory.

The core checks the arguments, as for the native engine. MPI's non-blocking operations
do the rest, see `collectives`. A group has its own MPI communicator, so its
messages do not mix with the program's other use of MPI. MPI cannot say at which
operation a rank is, which rank has left, or that the group is broken. The world's store
carries this information.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from allhands._C import ANY_TAG, Buffer, CheckedCall
from allhands.arrays import as_buffer
from allhands.backends.call import Call
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.mpi.collectives import MpiCollective
from allhands.backends.mpi.failed_ranks import failed_ranks
from allhands.backends.mpi.meeting import MpiGroup, meet
from allhands.backends.mpi.memory import any_message, message
from allhands.backends.mpi.plain import plain_all_reduce
from allhands.backends.mpi.receive import MpiMessage, MpiProbe, MpiReceive, MpiSight
from allhands.backends.polled import FIRST_OWN_TAG, refuse_options
from allhands.backends.polled_rows import PolledRows
from allhands.backends.polled_work import Begun, PolledWork, Subject
from allhands.backends.rows import as_row, pack, unpack
from allhands.backends.work import Work
from allhands.errors import DistBackendError, RankFailedError
from allhands.options import RedOpType, ReduceOp
from allhands.rendezvous.mpi_job import MpiJob, join_mpi_job

__all__ = ["MpiCommunicator", "create"]


def create(name: str, options: CommunicatorOptions, pg_options: Any) -> Communicator:
    """See `registry.make_communicator`. Waits until every member has come.

    Raises:
        TypeError: `pg_options` is given; this backend has none.
        RuntimeError: there is no MPI, or its mpiexec did not start this process.
        DistStoreError: a member did not come in time.
        DistBackendError: MPI could not make the group.
    """
    refuse_options(name, pg_options)
    options.roster()  # tells ranks of other backends, for which MPI would wait
    job = join_mpi_job(options.timeout)
    group = meet(job, options)
    return MpiCommunicator(job, group, options)


_PAUSE_OF_LOOKS = 0.25
"""Seconds between two checks for bad news by probes that do not wait."""


class MpiCommunicator(PolledRows):
    """One rank's end of a group; thread-safe."""

    receive_type = MpiReceive

    def __init__(
        self, job: MpiJob, group: MpiGroup, options: CommunicatorOptions
    ) -> None:
        super().__init__(group.store, options, job.lock)
        self.job = job
        self.library_error = job.mpi.Exception
        self._comm = group.comm
        self._own_comm = group.own_comm
        self._plain_all_reduce = plain_all_reduce(job.mpi, group.comm)
        self._ask_at = 0.0
        self._most_tag: int = group.comm.Get_attr(job.mpi.TAG_UB)

    def library_failed(self, subject: Subject, error: Exception) -> DistBackendError:
        """See `PolledGroup.library_failed`."""
        ranks = failed_ranks(self.job.mpi, self._comm, error)
        if not ranks:
            return self.job.failed(f"{self.title}: {subject}", error)
        dead = ", ".join(map(str, ranks))
        needed = f"{self.title} needs rank{'s' * (len(ranks) > 1)} {dead}"
        failure = RankFailedError(
            f"{subject}: {needed}, which died; {self.job.library} says: {error}"
        )
        failure.ranks = ranks
        return failure

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        return self._looked(call) if call.op == "iprobe" else super().submit(call)

    def _as_request(self, request: Any) -> Any:
        return self.job.mpi.Request.fromhandle(request)

    def _messages(self) -> dict[str, Callable[[Call, float], PolledWork]]:
        own = {"recv_status": self._recv_status, "probe": self._probe}
        return super()._messages() | own

    def _begin(
        self, checked: CheckedCall, op: RedOpType | ReduceOp, limit: float
    ) -> Begun:
        return MpiCollective(self.job.mpi, self._comm, checked, op).begin()

    def _free(self, is_whole: bool) -> None:
        comm, self._comm = self._comm, None
        if is_whole:
            with self.lock:
                comm.Free()
                self._own_comm.Free()

    def _start_send(self, row: Buffer, peer: int, tag: int) -> Any:
        comm, tag = self._tagged(tag)
        return comm.Isend(message(self.job.mpi, row), peer, tag)

    def _start_recv(self, row: Buffer, peer: int | None, tag: int) -> Any:
        request = self._irecv(message(self.job.mpi, row), peer, tag)
        return MpiMessage(self.job.mpi, request, row.num_bytes)

    def _recv_status(self, call: Call, limit: float) -> PolledWork:
        buffer = as_buffer(call.output, writable=True)
        itemsize = buffer.num_bytes // max(buffer.count, 1)
        # A complete copy: a short message must leave the rest unchanged.
        row = as_row([buffer]) or pack([buffer])
        memory = any_message(self.job.mpi, row)
        request = self._irecv(memory, call.peer, call.tag)
        came = MpiMessage(self.job.mpi, request, row.num_bytes, itemsize)

        def end() -> None:
            if row.address != buffer.address:
                unpack(row, [buffer])

        begun = Begun([came], end, (row, buffer, call.output))
        subject = self._awaited("recv", call)
        return MpiReceive(self, subject, begun, limit, [call.output])

    def _probe(self, call: Call, limit: float) -> PolledWork:
        comm, tag = self._tagged(call.tag)
        sight = MpiSight(self.job.mpi, comm, self._source(call.peer), tag)
        begun = Begun([sight], lambda: None, None)
        return MpiProbe(self, self._awaited("probe", call), begun, limit, [])

    def _looked(self, call: Call) -> Work | None:
        """Return a probe that has ended; None if no message has come."""
        with self.lock:
            self._check_whole(call.op)
            work: MpiProbe = self._started(self._probe, call, self._limit)
            if work.advance():
                work.wait_for(None)
                return work
            self.forget(work)
            reason = self._news_of(work.subject)
        if reason is not None:
            raise reason
        return None

    def _news_of(self, subject: Subject) -> DistBackendError | None:
        """Call `look` only rarely: it asks the store, and programs probe often."""
        now = time.monotonic()
        if now < self._ask_at:
            return None
        self._ask_at = now + _PAUSE_OF_LOOKS
        return self.look(subject)

    def _source(self, peer: int | None) -> int:
        """Return the source as MPI names it."""
        any_source: int = self.job.mpi.ANY_SOURCE
        return any_source if peer is None else peer

    def _irecv(self, memory: list[Any], peer: int | None, tag: int) -> Any:
        comm, tag = self._tagged(tag)
        return comm.Irecv(memory, self._source(peer), tag)

    def _tagged(self, tag: int) -> tuple[Any, int]:
        """Return the communicator and the MPI tag for messages with this tag."""
        if tag == ANY_TAG:
            return self._comm, self.job.mpi.ANY_TAG
        if tag >= FIRST_OWN_TAG:
            return self._own_comm, (tag - FIRST_OWN_TAG) % (self._most_tag + 1)
        if tag > self._most_tag:
            raise ValueError(
                f"tag {tag}: {self.job.library} has tags from 0 to {self._most_tag}"
            )
        return self._comm, tag
