"""Receives and probes on MPI, which can be given up and report which message came."""

from __future__ import annotations

from typing import Any

from allhands.backends.polled_work import PolledReceive
from allhands.errors import DistBackendError

__all__ = ["MpiMessage", "MpiProbe", "MpiReceive", "MpiSight"]


class _Seen:
    """A message to this rank; its `source` is known when it has come."""

    def __init__(self, mpi: Any) -> None:
        self.source = -1
        self._byte = mpi.BYTE
        self._status = mpi.Status()

    @property
    def tag(self) -> int:
        """The tag of the message."""
        tag: int = self._status.Get_tag()
        return tag

    @property
    def num_came(self) -> int:
        """The number of bytes of the message."""
        num: int = self._status.Get_count(self._byte)
        return num


class MpiMessage(_Seen):
    """A message that `request` receives: `num_bytes`, or less if `least` is set.

    `least` is then the size of an element.
    """

    def __init__(self, mpi: Any, request: Any, num_bytes: int, least: int = 0) -> None:
        super().__init__(mpi)
        self.num_bytes = num_bytes
        self._least = least
        self._request = request
        self._error = mpi.Exception

    @property
    def fits(self) -> bool:
        """Whether the number of bytes is acceptable."""
        is_short = self._least and self.num_came < self.num_bytes
        return self.num_came == self.num_bytes or bool(
            is_short and self.num_came % self._least == 0
        )

    def Test(self) -> bool:
        """Return whether the message has come or the receive was cancelled."""
        is_over: bool = self._request.Test(self._status)
        if is_over and not self._status.Is_cancelled():
            self.source = self._status.Get_source()
        return is_over

    def cancel(self) -> bool:
        """Ask MPI to cancel the receive; return whether it is over.

        Only receives can be cancelled.
        """
        try:
            if self._request:  # else an error of MPI has ended it
                self._request.Cancel()
            return any(self.Test() for _ in range(1000))
        except self._error:  # as for a receive from any rank when one has died
            return not self._request


class MpiSight(_Seen):
    """A message that `comm` is asked for, and keeps."""

    def __init__(self, mpi: Any, comm: Any, source: int, tag: int) -> None:
        super().__init__(mpi)
        self._comm = comm
        self._wanted = source, tag

    def Test(self) -> bool:
        """Return whether the message has come."""
        if self.source < 0 and self._comm.Iprobe(*self._wanted, self._status):
            self.source = self._status.Get_source()
        return self.source >= 0


class _Arrival(PolledReceive):
    """A work that reports which message came; its only request is a `_Seen`."""

    _came = 0, 0

    def envelope(self) -> tuple[int, int, int]:
        """See `Work.envelope`."""
        return self.source_rank(), *self._came

    def _finish(self) -> DistBackendError | None:
        [seen] = self._begun.requests
        self._came = seen.tag, seen.num_came
        return super()._finish()


class MpiReceive(_Arrival):
    """A receive whose `MpiMessage` checks the length."""

    def _finish(self) -> DistBackendError | None:
        [message] = self._begun.requests
        if message.fits:
            return super()._finish()
        return DistBackendError(
            f"{self._group.title}: {self.subject}: the message of rank "
            f"{message.source} has {message.num_came} bytes, the array "
            f"{message.num_bytes}; both sides must agree on dtype and number of "
            f"elements"
        )

    def _give_up(self, error: DistBackendError) -> None:
        [message] = self._begun.requests
        if not message.cancel():
            super()._give_up(error)
        elif message.source < 0:
            self._settle(error)
        else:
            self._source = message.source
            self._settle(self._finish())


class MpiProbe(_Arrival):
    """A probe for a message, by an `MpiSight`."""

    def _give_up(self, error: DistBackendError) -> None:
        self._settle(error)  # MPI does not know of it
