"""MpiReceive: a receive by MPI, which can be given up, and tells what came."""

from __future__ import annotations

from typing import Any

from allhands.backends.polled_work import PolledReceive
from allhands.errors import DistBackendError

__all__ = ["MpiMessage", "MpiReceive"]


class MpiMessage:
    """A message of `num_bytes` to this rank; its `source` is known when it has come."""

    def __init__(self, mpi: Any, request: Any, num_bytes: int) -> None:
        self.source = -1
        self.num_bytes = num_bytes
        self._byte = mpi.BYTE
        self._request = request
        self._status = mpi.Status()

    @property
    def num_came(self) -> int:
        """How many bytes it has."""
        num: int = self._status.Get_count(self._byte)
        return num

    def Test(self) -> bool:
        """Whether it has come, or was left."""
        is_over: bool = self._request.Test(self._status)
        if is_over and not self._status.Is_cancelled():
            self.source = self._status.Get_source()
        return is_over

    def Cancel(self) -> None:
        """Ask MPI to leave it; unlike all else it can be told to."""
        self._request.Cancel()


class MpiReceive(PolledReceive):
    """A receive of the length that its `MpiMessage` is to have."""

    def _finish(self) -> DistBackendError | None:
        [message] = self._begun.requests
        if message.num_came == message.num_bytes:
            return super()._finish()
        return DistBackendError(
            f"{self._group.title}: {self.subject}: the message of rank "
            f"{message.source} has {message.num_came} bytes, the array "
            f"{message.num_bytes}; both sides must agree on dtype and number of "
            f"elements"
        )

    def _give_up(self, error: DistBackendError) -> None:
        [message] = self._begun.requests
        message.Cancel()
        if not any(self._is_over() for _ in range(1000)):
            super()._give_up(error)
        else:
            self._settle(error if self._source < 0 else self._finish())
