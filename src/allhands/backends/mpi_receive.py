"""MpiReceive: a receive by MPI, which can be given up, and tells what came."""

from __future__ import annotations

from typing import Any

from allhands.backends.polled_work import Begun, PolledGroup, PolledWork, Subject
from allhands.errors import DistBackendError

__all__ = ["MpiReceive"]


class MpiReceive(PolledWork):
    """A receive of `num_bytes`; unlike all else MPI can be told to leave it."""

    def __init__(
        self,
        group: PolledGroup,
        subject: Subject,
        begun: Begun,
        limit: float,
        outputs: list[Any],
        num_bytes: int,
        mpi: Any,
    ) -> None:
        super().__init__(group, subject, begun, limit, outputs)
        self._num_bytes = num_bytes
        self._mpi = mpi
        self._status = mpi.Status()
        self._source = -1

    def source_rank(self) -> int:
        """See `Work.source_rank`."""
        if self._source < 0:
            raise RuntimeError("source_rank(): nothing has come yet; call wait() first")
        return self._source

    def _is_over(self) -> bool:
        [request] = self._begun.requests
        is_over: bool = request.Test(self._status)
        return is_over

    def _finish(self) -> DistBackendError | None:
        self._source = self._status.Get_source()
        came = self._status.Get_count(self._mpi.BYTE)
        if came != self._num_bytes:
            return DistBackendError(
                f"{self._group.title}: {self.subject}: the message of rank "
                f"{self._source} has {came} bytes, the array {self._num_bytes}; both "
                f"sides must agree on dtype and number of elements"
            )
        self._begun.end()
        return None

    def _give_up(self, error: DistBackendError) -> None:
        [request] = self._begun.requests
        request.Cancel()
        for _ in range(1000):
            if request.Test(self._status):
                is_gone = self._status.Is_cancelled()
                self._settle(error if is_gone else self._finish())
                return
        super()._give_up(error)
