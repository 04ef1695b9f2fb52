"""Programs that begin with a module imported, which takes its time of a CPU once.

They are forked from one process for all tests, `harness.forking`, which has it.
"""

from __future__ import annotations

import atexit
import functools
import marshal
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

from harness.forking import MESSAGE_BYTES

_TESTS = pathlib.Path(__file__).resolve().parent.parent


class PreparedProgram:
    """A running program of Python; what of `subprocess.Popen` the tests use.

    What it writes to stderr may be of any length, to stdout as much as a pipe holds.
    """

    def __init__(
        self, module: str, code: str, environment: dict[str, str], *arguments: str
    ) -> None:
        """`module`: what is imported. `code`: the program's path, or its text."""
        self.returncode: int | None = None
        self._server = _server(module, *sorted(_read_as_it_loads(environment)))
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading)
        self._stderr = os.memfd_create("stderr")
        job = {
            "code": code,
            "arguments": arguments,
            "environment": environment,
            "folder": os.getcwd(),
        }
        socket.send_fds(self._server, [marshal.dumps(job)], [writing, self._stderr])
        os.close(writing)
        self.pid: int = marshal.loads(self._server.recv(MESSAGE_BYTES))
        self._pidfd = os.pidfd_open(self.pid)

    def has_ended(self, timeout: float | None) -> bool:
        """Whether it has, within so many seconds; nobody reaps it here."""
        watch = select.poll()
        watch.register(self._pidfd, select.POLLIN)
        return bool(watch.poll(None if timeout is None else timeout * 1000))

    def poll(self) -> int | None:
        """Its exit code as Popen has it; None: it still runs."""
        if self.returncode is None and self.has_ended(0):
            self._server.send(marshal.dumps(self.pid))
            status = marshal.loads(self._server.recv(MESSAGE_BYTES))
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None and not self.has_ended(timeout):
            raise subprocess.TimeoutExpired(f"program {self.pid}", timeout or 0)
        return self.poll()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has written, once it has ended."""
        self.wait(timeout)
        size = os.fstat(self._stderr).st_size
        return self.stdout.read(), os.pread(self._stderr, size, 0).decode()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Once it has ended."""
        self.stdout.close()
        os.close(self._stderr)
        os.close(self._pidfd)


def _read_as_it_loads(environment: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that torch reads but once."""
    for name, value in environment.items():
        if name.startswith("TORCH_"):
            yield name, value


@functools.cache
def _server(module: str, *variables: tuple[str, str]) -> socket.socket:
    """By which the process is asked to fork; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.forking", module, str(theirs.fileno())],
            cwd=_TESTS,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # Of several threads a fork would copy one.
            env={**os.environ, "OMP_NUM_THREADS": "1", **dict(variables)},
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # which comes first
    return ours
