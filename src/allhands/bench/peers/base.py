"""The interface of a peer: how its ranks start, and one call per cell."""

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
    """Whether the peer is measured between hosts only."""
    rank: int
    size: int

    @abstractmethod
    def __init__(self, folder: str, *place: int) -> None:
        """Join the job; `place` is what `commands` adds after the folder."""

    @classmethod
    def variant(cls, text: str) -> type[Peer]:
        """Return the peer in another form, given after its name and a colon.

        Raises:
            ValueError: the peer has no such form.
        """
        raise ValueError(f"{cls.name} has no other forms, such as {text!r}")

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Say why this peer cannot be measured here, and the remedy; else empty."""

    @classmethod
    def commands(
        cls, size: int, folder: str, hosts: FakeHosts | None = None
    ) -> list[list[str]]:
        """Return the command lines that start all ranks: here one process for each.

        With `hosts` each rank runs on the host that `FakeHosts.host_of` gives.
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
        """Return the command of a rank that finds out by itself which rank it is."""
        return [*_WORKER, cls.name, folder]

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the names and versions of the libraries that carry the data."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have called it."""

    def allocate(self, cell: Cell) -> Allocate:
        """Return the function that allocates the arrays of `cell`, filled with zeros.

        Raises:
            Absent: the peer has no such arrays.
        """
        return fresh_zeros

    @abstractmethod
    def prepare(self, cell: Cell, data: Data) -> Call:
        """Return the call to time, with everything that a user would reuse made ready.

        Raises:
            Absent: the peer cannot run this cell.
        """

    def complete(self) -> None:  # noqa: B027
        """Do, untimed, what the call leaves out; only bare sockets need it."""

    def rest(self, is_asked: Callable[[float], bool]) -> None:  # noqa: B027
        """Help other ranks along until `is_asked`, which waits that many seconds."""

    def ping_pong(self, cell: Cell, ends: Callable[[int], tuple[Call, Call]]) -> Call:
        """Return the call in which partners send in turn; without one it does nothing.

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
        """Return the call in which partners send at the same time.

        `both` of the partner's rank gives the call that sends to and receives from it.
        The call of a rank without a partner does nothing.
        """
        partner = cell.partner(self.rank)
        return (lambda: None) if partner is None else both(partner)

    @abstractmethod
    def close(self) -> None:
        """Leave the job."""
