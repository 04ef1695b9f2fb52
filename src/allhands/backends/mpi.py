"""MPI: arrays in CPU memory, moved by the MPI library that mpi4py has loaded.

The core checks the arguments, as for the native engine; MPI's non-blocking operations
do the rest, see `mpi_collectives`. A group is a communicator of MPI's own, so nothing
else that the program does with MPI meets its messages. The world's store tells what
MPI has no word for: who is at which operation, who has left, and that the group broke.
"""

from __future__ import annotations

from typing import Any

from allhands._C import Buffer, CheckedCall
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.mpi_collectives import MpiCollective
from allhands.backends.mpi_meeting import Place, meet
from allhands.backends.mpi_memory import message
from allhands.backends.mpi_receive import MpiMessage, MpiReceive
from allhands.backends.polled import FIRST_OWN_TAG, PolledCommunicator
from allhands.backends.polled_work import Begun, Subject
from allhands.errors import DistBackendError
from allhands.options import RedOpType, ReduceOp
from allhands.rendezvous.mpi_job import MpiJob, join_mpi_job

__all__ = ["MpiCommunicator", "create"]


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


class MpiCommunicator(PolledCommunicator):
    """One rank's end of a group; thread-safe."""

    receive_type = MpiReceive

    def __init__(self, job: MpiJob, place: Place, options: CommunicatorOptions) -> None:
        super().__init__(place.store, options, job.lock)
        self.job = job
        self.library_error = job.mpi.Exception
        self._comm = place.comm
        self._own_comm = place.own_comm
        self._most_tag: int = place.comm.Get_attr(job.mpi.TAG_UB)

    def library_failed(self, subject: Subject, error: Exception) -> DistBackendError:
        """See `PolledGroup.library_failed`."""
        return self.job.failed(f"{self.title}: {subject}", error)

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
        comm, tag = self._tagged(tag)
        source = self.job.mpi.ANY_SOURCE if peer is None else peer
        request = comm.Irecv(message(self.job.mpi, row), source, tag)
        return MpiMessage(self.job.mpi, request, row.num_bytes)

    def _tagged(self, tag: int) -> tuple[Any, int]:
        """Where messages of this tag go, and by which tag of MPI's."""
        if tag >= FIRST_OWN_TAG:
            return self._own_comm, (tag - FIRST_OWN_TAG) % (self._most_tag + 1)
        if tag > self._most_tag:
            raise ValueError(
                f"tag {tag}: {self.job.library} has tags from 0 to {self._most_tag}"
            )
        return self._comm, tag
