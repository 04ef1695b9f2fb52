"""A job: all ranks of one peer, which start once and then carry out command by command.

Thread rule: a job belongs to one thread.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from allhands.bench.fake_hosts import FakeHosts
from allhands.bench.peers import find_peer

__all__ = ["Job", "JobError"]

_LIMIT_S = 120.0  # for a start and for an answer; many times what any takes
_LOOK_S = 0.1  # between looks at processes that have not connected yet
_LEAVE_S = 5.0  # for ranks to end by themselves
_LINES = 20  # of a failed job's output that are shown


class JobError(RuntimeError):
    """A rank died, failed or was silent; the message holds what the ranks printed."""


class Job:
    """The ranks of `peer`; `folder` is theirs, and only this user can enter it.

    The ranks get `environment`, and run on `hosts`, or on this host if that is None.
    `start` starts the processes and `connect` waits for them, so that several jobs can
    start at the same time; `close` ends the processes.
    """

    def __init__(
        self,
        peer: str,
        ranks: int,
        folder: Path,
        environment: dict[str, str],
        hosts: FakeHosts | None = None,
    ) -> None:
        self.peer = peer
        self.ranks = ranks
        self._hosts = hosts
        self.versions: dict[str, str] = {}
        self._connections: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = folder
        self._log = folder / "output"
        self._environment = environment
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "socket"))
        self._listener.listen(ranks)
        self._listener.settimeout(_LOOK_S)

    def start(self) -> None:
        """Start the processes."""
        folder, hosts = str(self._folder), self._hosts
        with self._log.open("wb") as log:
            for command in find_peer(self.peer).commands(self.ranks, folder, hosts):
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C is for the measuring process
                )
                self._processes.append(process)

    def connect(self) -> None:
        """Wait until every rank is ready.

        Raises:
            JobError: a rank ended before, runs on the wrong host, or was not ready in
                time.
        """
        deadline = time.monotonic() + _LIMIT_S
        hellos: dict[int, Connection] = {}
        waiting: list[Connection] = []
        while len(hellos) < self.ranks:
            with suppress(TimeoutError):
                accepted, _ = self._listener.accept()
                waiting.append(Connection(accepted.detach()))
            for connection in [other for other in waiting if other.poll()]:
                waiting.remove(connection)
                rank, place, self.versions = self._receive(connection)
                self._check(rank, place)
                hellos[rank] = connection
            if any(process.poll() is not None for process in self._processes):
                raise self._error("a rank ended while it started")
            if time.monotonic() > deadline:
                raise self._error(
                    f"{len(hellos)} of {self.ranks} ranks were ready after "
                    f"{_LIMIT_S:.0f} s"
                )
        self._connections = [hellos[rank] for rank in range(self.ranks)]

    def _check(self, rank: int, place: str) -> None:
        """Fail if a rank is on the wrong host: it might use shared memory."""
        if self._hosts is None:
            return
        host = self._hosts[self._hosts.host_of(rank, self.ranks)].name
        if place != host:
            raise self._error(f"rank {rank} runs on {place}; want {host}")

    def ask(self, command: str, *arguments: Any) -> list[Any]:
        """Let every rank carry out `command`, and return their results by rank.

        Raises:
            JobError: a rank died, raised, or did not answer in time.
        """
        for connection in self._connections:
            with suppress(BrokenPipeError):  # receiving then finds the connection ended
                connection.send((command, *arguments))
        deadline = time.monotonic() + _LIMIT_S
        answers: dict[int, Any] = {}
        while len(answers) < self.ranks:
            left = [rank for rank in range(self.ranks) if rank not in answers]
            waiting = [self._connections[rank] for rank in left]
            ready = wait(waiting, max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._error(
                    f"ranks {left} did not finish {command!r} in {_LIMIT_S:.0f} s"
                )
            for rank, connection in zip(left, waiting, strict=True):
                if connection not in ready:
                    continue
                went_well, answer = self._receive(connection)
                if not went_well:
                    raise self._error(f"rank {rank} failed:\n{answer}")
                answers[rank] = answer
        return [answers[rank] for rank in range(self.ranks)]

    def _receive(self, connection: Connection) -> Any:
        try:
            return connection.recv()
        except (EOFError, ConnectionError):
            raise self._error("a rank died") from None

    def _error(self, problem: str) -> JobError:
        printed = self._log.read_text(errors="replace").splitlines()[-_LINES:]
        return JobError("\n".join([f"{self.peer}: {problem}", *printed]))

    def leave(self) -> None:
        """Tell the ranks to end by themselves."""
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def close(self, is_failed: bool) -> None:
        """Wait for the ranks to leave, unless something failed; then kill the rest."""
        limit = time.monotonic() + (0 if is_failed else _LEAVE_S)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0, limit - time.monotonic()))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
