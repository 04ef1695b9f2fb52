"""What a peer must offer: how its ranks start, and one call per cell."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from allhands.bench.cells import Cell
from allhands.bench.data import Allocate, Data, fresh_zeros
from allhands.bench.fake_hosts import FakeHosts

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
    needs_hosts: ClassVar[bool] = False
    """Whether it is measured between hosts only."""
    rank: int
    size: int

    @abstractmethod
    def __init__(self, folder: str, *place: int) -> None:
        """Join the job; `place` is what `commands` put behind the folder."""

    @classmethod
    def variant(cls, text: str) -> type[Peer]:
        """The peer in another form, which stands behind its name and a colon.

        Raises:
            ValueError: there is no such form of it.
        """
        raise ValueError(f"{cls.name} has no other forms, such as {text!r}")

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Why this peer cannot be measured here, with the remedy; else empty."""

    @classmethod
    def commands(
        cls, size: int, folder: str, hosts: FakeHosts | None = None
    ) -> list[list[str]]:
        """The command lines that start all ranks: here a process for each.

        With `hosts` they are on these, as `FakeHosts.host_of` says.
        """
        commands = []
        for rank in range(size):
            command = [*cls.worker(folder), str(rank), str(size)]
            if hosts is not None:
                number = hosts.host_of(rank, size)
                command = hosts[number].enter(*command, str(number))
            commands.append(command)
        return commands

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

    def complete(self) -> None:  # noqa: B027
        """Do what the call leaves out, untimed; nothing, but for what is a floor."""

    def rest(self, is_asked: Callable[[float], bool]) -> None:  # noqa: B027
        """Do what others may need, until `is_asked`, which waits so many seconds."""

    def ping_pong(self, cell: Cell, ends: Callable[[int], tuple[Call, Call]]) -> Call:
        """Partners send to each other in turn; a rank without one is idle.

        `ends` of the partner's rank gives the calls that send to and receive from it.
        """
        partner = cell.partner(self.rank)
        if partner is None:
            return lambda: None
        send, recv = ends(partner)
        first, second = (send, recv) if self.rank < partner else (recv, send)

        def call() -> None:
            first()
            second()

        return call

    def exchange(self, cell: Cell, both: Callable[[int], Call]) -> Call:
        """Partners send to each other at once; a rank without one is idle.

        `both` of the partner's rank gives the call that sends to and receives from it.
        """
        partner = cell.partner(self.rank)
        return (lambda: None) if partner is None else both(partner)

    @abstractmethod
    def close(self) -> None:
        """Leave the job."""
