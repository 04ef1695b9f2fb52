"""One rank of one peer: carries out the commands of the measuring process.

    python -m allhands.bench.worker PEER FOLDER [RANK SIZE]

Between commands the rank sleeps. It connects to FOLDER/socket, in a directory that only
this user can enter. A command is a tuple of the name of a method of `Worker` and its
arguments; the answer is a pair: whether the command went well, and its result. When the
connection ends, the rank ends.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable
from itertools import repeat
from multiprocessing.connection import Client
from time import perf_counter
from typing import Any

from allhands.bench.cells import Cell
from allhands.bench.data import Data
from allhands.bench.peers import Absent, Peer, find_peer

__all__ = ["Worker", "main"]


class Worker:
    """Carries out commands. All ranks of a job get the same ones in the same order."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._data: Data | None = None
        self._call: Callable[[], Any] | None = None

    def prepare(self, cell: Cell) -> str:
        """Prepare `cell` and check one call; return why the peer cannot, if so."""
        self.drop()
        try:
            data = Data(cell, self._peer.rank, self._peer.allocate(cell))
            self._call = self._peer.prepare(cell, data)
            self._data = data
            self.check()
        except Absent as absent:
            return str(absent)
        except RuntimeError as error:  # torch reports it so, at the call
            if "not support" not in str(error):
                raise
            return str(error)
        return ""

    def check(self) -> None:
        """Fill the arrays, call once, look at the result, and clear them."""
        data, call = self._ready()
        data.fill()
        call()
        self._peer.complete()
        data.check()
        data.clear()

    def block(self, warm_up: int, calls: int) -> float:
        """Return this rank's seconds for `calls` calls in a row, after a barrier."""
        _, call = self._ready()
        for _ in repeat(None, warm_up):
            call()
        self._peer.barrier()
        start = perf_counter()
        for _ in repeat(None, calls):
            call()
        return perf_counter() - start

    def each(self, calls: int) -> list[float]:
        """Return the seconds of each of `calls` calls after a barrier, timed alone."""
        _, call = self._ready()
        self._peer.barrier()
        seconds = []
        for _ in repeat(None, calls):
            start = perf_counter()
            call()
            seconds.append(perf_counter() - start)
        return seconds

    def drop(self) -> None:
        """Drop the arrays."""
        self._data = self._call = None

    def _ready(self) -> tuple[Data, Callable[[], Any]]:
        assert self._data is not None
        assert self._call is not None
        return self._data, self._call


def main(name: str, folder: str, *place: str) -> None:
    """Be a rank until the measuring process closes the connection."""
    with Client(f"{folder}/socket") as connection:
        peer = find_peer(name)(folder, *map(int, place))
        connection.send((peer.rank, os.uname().nodename, peer.versions()))
        worker = Worker(peer)
        gc.disable()  # a collection would slow down one call of one peer
        while True:
            peer.rest(connection.poll)
            try:
                command, *arguments = connection.recv()
            except EOFError:
                break
            try:
                answer = (True, getattr(worker, command)(*arguments))
            except Exception:
                answer = (False, traceback.format_exc())
            connection.send(answer)
        worker.drop()
        peer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
