"""What a peer must offer: how its ranks start, and one call per cell."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from allhands.bench.cells import Cell
from allhands.bench.data import Allocate, Data, fresh_zeros

__all__ = ["Absent", "Call", "Peer"]

Call = Callable[[], Any]

_WORKER = [sys.executable, "-u", "-m", "allhands.bench.worker"]


class Absent(Exception):
    """The peer has no such operation, mode or dtype; the message says which."""


class Peer(ABC):
    """One rank of one communication library. Class methods serve the measuring process.

    `folder` is a directory that all ranks of the job share, empty at first.
    """

    name: ClassVar[str]
    rank: int
    size: int

    @abstractmethod
    def __init__(self, folder: str, *place: int) -> None:
        """Join the job; `place` is what `commands` put behind the folder."""

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Why this peer cannot be measured here, with the remedy; else empty."""

    @classmethod
    def commands(cls, size: int, folder: str) -> list[list[str]]:
        """The command lines that start all ranks: here a process for each."""
        return [
            [*_WORKER, cls.name, folder, str(rank), str(size)] for rank in range(size)
        ]

    @classmethod
    def worker(cls, folder: str) -> list[str]:
        """The command of a rank that finds out by itself which one it is."""
        return [*_WORKER, cls.name, folder]

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Name and version of the libraries that carry the data."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have called it."""

    def allocate(self, cell: Cell) -> Allocate:
        """What makes the arrays of `cell`, zeros.

        Raises:
            Absent: the peer has no such arrays.
        """
        return fresh_zeros

    @abstractmethod
    def prepare(self, cell: Cell, data: Data) -> Call:
        """The call to be timed, with everything made ready that a user would reuse.

        Raises:
            Absent: the peer cannot do this cell.
        """

    def ping_pong(self, ends: Callable[[int], tuple[Call, Call]]) -> Call:
        """Neighbours 0-1, 2-3 ... send to each other; a last one without is idle.

        `ends` of the neighbour's rank gives the calls that send to and receive from it.
        """
        neighbour = self.rank ^ 1
        if neighbour >= self.size:
            return lambda: None
        send, recv = ends(neighbour)
        first, second = (send, recv) if self.rank < neighbour else (recv, send)

        def call() -> None:
            first()
            second()

        return call

    @abstractmethod
    def close(self) -> None:
        """Leave the job."""
