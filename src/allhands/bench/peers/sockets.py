"""Bare TCP sockets: the time that the kernel takes to move the bytes.

This peer is no library, but the lower limit of the time between hosts: two ranks send
and receive at the same time what an operation has to move between them, and never
sleep. They sum nothing and do not copy a rank's own share; `complete` does that
afterwards.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from allhands.bench.cells import Cell
from allhands.bench.data import Data
from allhands.bench.fake_hosts import address_of
from allhands.bench.peers.base import Absent, Call, Peer
from allhands.bench.peers.connection import connect_all
from allhands.bench.peers.move import Array, Move, move_of
from allhands.store import FileStore

__all__ = ["Sockets"]


class Sockets(Peer):
    """A rank with a connection to each other rank."""

    name = "sockets"
    needs_hosts = True

    def __init__(self, folder: str, *place: int) -> None:
        self.rank, self.size, host = place
        store = FileStore(f"{folder}/store", self.size)
        self._connections = connect_all(store, self.rank, self.size, address_of(host))
        self._bytes = np.zeros(2, np.uint8)
        self._move: Move | None = None

    @classmethod
    def missing(cls) -> str:
        """Return an empty text: every kernel has TCP sockets."""
        return ""

    def versions(self) -> dict[str, str]:
        """Return nothing: no library carries the data."""
        return {}

    def barrier(self) -> None:
        """See `Peer.barrier`; with each round, a rank hears of twice as many ranks."""
        sent, received = self._bytes.ctypes.data, self._bytes.ctypes.data + 1
        distance = 1
        while distance < self.size:
            self._connections[(self.rank + distance) % self.size].send(sent, 1)
            self._connections[(self.rank - distance) % self.size].recv(received, 1)
            distance *= 2

    def prepare(self, cell: Cell, data: Data) -> Call:
        """See `Peer.prepare`."""
        self._move = None
        if cell.mode != "sync":
            raise Absent(f"sockets have no {cell.mode} form")
        if cell.op == "barrier":
            return self.barrier
        if cell.op == "send_recv":
            return self.ping_pong(cell, partial(self._ends, data))
        if cell.op == "exchange":
            return self.exchange(
                cell, lambda partner: self._both(partner, data.input, data.output)
            )
        if self.size > 2:
            raise Absent("sockets move what 2 ranks have for each other")
        self._move = move_of(cell.collective, self.rank, data)
        return self._both(1 - self.rank, self._move.sent, self._move.received)

    def complete(self) -> None:
        """See `Peer.complete`."""
        if self._move is not None:
            self._move.complete()

    def _ends(self, data: Data, partner: int) -> tuple[Call, Call]:
        connection = self._connections[partner]
        sent, received = _memory(data.input), _memory(data.output)
        return partial(connection.send, *sent), partial(connection.recv, *received)

    def _both(self, partner: int, sent: Array | None, received: Array | None) -> Call:
        exchange = self._connections[partner].exchange
        return partial(exchange, *_memory(sent), *_memory(received))

    def close(self) -> None:
        """See `Peer.close`."""
        for connection in self._connections.values():
            connection.close()


def _memory(array: Array | None) -> tuple[int, int]:
    """Return the array's address and its number of bytes."""
    return (0, 0) if array is None else (array.ctypes.data, array.nbytes)
