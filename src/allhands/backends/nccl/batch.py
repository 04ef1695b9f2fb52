"""NcclBatch: operations that NCCL carries out as one, so that their order is free."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from allhands.backends.nccl.call import NcclCall
from allhands.backends.nccl.comm import NcclComm
from allhands.backends.nccl.request import NcclRequest

__all__ = ["NcclBatch"]


class NcclBatch:
    """The operations of one block; for one thread."""

    def __init__(self) -> None:
        self.comm: NcclComm | None = None
        """The communicator of all of them; None until the first one comes."""
        self._open = ExitStack()
        self._entries: list[tuple[NcclCall, NcclRequest, Any]] = []

    def begin(self, comm: NcclComm) -> None:
        """Open the block of NCCL, unless it is open."""
        if self.comm is None:
            self.comm = comm
            comm.nccl.group_start()
            self._open.callback(comm.nccl.group_end)

    def add(self, arrays: NcclCall, request: NcclRequest, stream: Any) -> None:
        """Note an operation that was passed to NCCL in `stream`."""
        self._entries.append((arrays, request, stream))

    def launch(self) -> None:
        """Close the block of NCCL, which begins all operations."""
        self._open.close()

    def finish(self) -> None:
        """Note the end of each operation in its stream."""
        for arrays, request, stream in self._entries:
            assert self.comm is not None, "an operation has begun the block"
            with self.comm.in_use():
                arrays.enqueue_copies_back()
                request.event = self.comm.record(stream)
