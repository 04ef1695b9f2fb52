"""Pmi: the connection to the process that started this rank, and its name service.

The launchers of MPICH and related libraries, and `srun --mpi=pmi2`, leave each rank a
socket (PMI_FD). There they answer lines of text in version 1.1 of PMI, the process
management interface. This package uses only names that a rank publishes and others look
up. These calls need no other rank, so nothing waits, and a time limit can be kept.

MPI itself speaks PMI on the same socket when it begins. So this package does not use
the socket after MPI has begun. A launcher takes a rank that ends without signing off
for a failed one, and ends the others. So the package signs off when the program ends,
unless MPI has begun, which signs off itself.
"""

from __future__ import annotations

import atexit
import os
import select
import socket
import struct
import time
from contextlib import suppress

from allhands import settings
from allhands.errors import DistStoreError
from allhands.rendezvous.mpi_library import is_mpi_begun

__all__ = ["Pmi", "has_pmi", "pmi"]

_VARIABLE = "PMI_FD"
_LIMIT_S = 30.0  # for one answer; a busy launcher takes 0.1
_GOODBYE_S = 1.0
_LONGEST = 1000  # bytes of a line; launchers take 1,024
_LONGEST_ANSWER = 1 << 16


def has_pmi() -> bool:
    """Return whether there is such a launcher, and no MPI here that uses it."""
    if _pmi is not None:
        return _pmi.is_of_this_process
    fd = os.environ.get(_VARIABLE, "")
    return fd.isdecimal() and _is_launchers(int(fd)) and not is_mpi_begun()


def pmi() -> Pmi:
    """Return the connection of this process, for which `has_pmi` is true.

    Raises:
        DistStoreError: the launcher does not answer.
    """
    global _pmi
    if _pmi is None:
        _pmi = Pmi(int(os.environ[_VARIABLE]))
        atexit.register(_pmi.leave)
    return _pmi


class Pmi:
    """A conversation of this process with its launcher. For one thread at a time."""

    def __init__(self, fd: int) -> None:
        # A copy: MPI may close its own, and the number may then mean another file. Not
        # a socket of Python, which could set modes that MPI's descriptor shares.
        self._fd = os.dup(fd)
        self._pid = os.getpid()
        self._published: set[str] = set()
        self._is_lost = False
        self._limit_s = _LIMIT_S
        answer = self._ask(
            "init", "response_to_init", pmi_version="1", pmi_subversion="1"
        )
        self._check("init", answer)

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process made it, and not a process from which it was forked."""
        return self._pid == os.getpid()

    def publish(self, name: str, text: str) -> None:
        """Let ranks look up `text`, which has neither spaces nor line ends.

        Raises:
            DistStoreError: the launcher refuses the text, or does not answer.
        """
        answer = self._ask("publish_name", "publish_result", service=name, port=text)
        self._check("publish_name", answer)
        self._published.add(name)

    def look_up(self, name: str) -> str | None:
        """Return the text that a rank has published; None if none has.

        Raises:
            DistStoreError: the launcher does not answer.
        """
        answer = self._ask("lookup_name", "lookup_result", service=name)
        return answer.get("port") if _is_good(answer) else None

    def leave(self) -> None:
        """Withdraw published names and sign off, unless MPI has begun."""
        if not self.is_of_this_process or self._is_lost or is_mpi_begun():
            return
        self._limit_s = _GOODBYE_S
        with suppress(DistStoreError):  # the launcher has ended, or has no time
            for name in self._published:
                self._ask("unpublish_name", "unpublish_result", service=name)
            self._ask("finalize", "finalize_ack")
        self._is_lost = True
        os.close(self._fd)

    def _ask(self, command: str, answer: str, **fields: str) -> dict[str, str]:
        """Send a line; return the launcher's answer.

        Raises:
            DistStoreError: it does not answer, or answers something else.
        """
        if self._is_lost:
            raise _no_answer(command, "an earlier answer did not come whole")
        words = [f"cmd={command}", *(f"{key}={text}" for key, text in fields.items())]
        line = " ".join(words).encode() + b"\n"
        if len(line) > _LONGEST:
            raise _no_answer(
                command, f"the line has {len(line)} bytes; it may have {_LONGEST}"
            )
        self._is_lost = True  # until the answer comes: the next question would get it
        try:
            os.write(self._fd, line)  # a short line, which is sent as a whole
            found = _fields_of(self._read_line())
        except OSError as error:
            raise _no_answer(command, str(error)) from error
        if found.get("cmd") != answer:
            raise _no_answer(command, f"it answered {found}")
        self._is_lost = False
        return found

    def _read_line(self) -> str:
        line = b""
        coming = select.poll()
        coming.register(self._fd, select.POLLIN)
        deadline = time.monotonic() + self._limit_s
        while not line.endswith(b"\n"):
            left = max(deadline - time.monotonic(), 0)
            if not coming.poll(1000 * left):
                raise TimeoutError(f"nothing within {self._limit_s:g} s")
            data = os.read(self._fd, 4096)
            if not data:
                raise ConnectionError("the connection has ended")
            line += data
            if len(line) > _LONGEST_ANSWER:
                raise ConnectionError(f"{len(line)} bytes came and no end of a line")
        return line.decode(errors="replace")

    def _check(self, command: str, answer: dict[str, str]) -> None:
        if not _is_good(answer):
            raise _no_answer(command, f"it answered {answer}")


_pmi: Pmi | None = None


def _is_launchers(fd: int) -> bool:
    """Return whether this is the launcher's socket, not another file with its number.

    A process between the launcher and this one may have closed it.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as found:
        found.setblocking(True)  # as before, even if new sockets have a limit
        option = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        peer, _, _ = struct.unpack("3i", option)
        is_stream = found.type == socket.SOCK_STREAM
        return found.family == socket.AF_UNIX and is_stream and peer != os.getpid()
    return False


def _fields_of(line: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in line.split())
    return {name: text for name, _, text in pairs}


def _is_good(answer: dict[str, str]) -> bool:
    """Return whether the launcher succeeded: Hydra says rc=0, Slurm info=ok."""
    return answer.get("rc", "0") == "0" and answer.get("info", "ok") == "ok"


def _no_answer(command: str, problem: str) -> DistStoreError:
    return DistStoreError(
        f"init_process_group: the launcher does not answer {command} by its PMI, at "
        f"{_VARIABLE}={os.environ.get(_VARIABLE, '')}: {problem}; "
        f"{settings.pmi.name}=no does without it"
    )
