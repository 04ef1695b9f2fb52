"""RecordMemory: where a rank puts its flight record for who asks it while it runs.

An anonymous file of the process, which others of the same user find among its
descriptors. That it is there, under the number of the process, says that the process
answers SIGUSR2 with its record: a child that is about to become another program has its
parent's. Its name says also which rank of which world that is, once the ranks have met.
It ends with the process and leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
import stat
import zlib
from contextlib import suppress
from typing import NamedTuple

from allhands.elastic.memory_file import memory_file, status_of

__all__ = [
    "Mark",
    "RecordMemory",
    "answers",
    "has_handler",
    "mark_of",
    "open_at_once",
    "read_regular",
    "record_in",
]

_NAME = "allhands.record"
_LONGEST = 1 << 28  # bytes of a rank's record
_LENGTH = 16  # of the name of a world
_CHECK = 8  # hex digits before a record: its CRC-32
_MOST_DIGITS = 9  # of a rank


class Mark(NamedTuple):
    """Which rank of which world a process is. Everybody may know it."""

    world: str
    """The same on all its ranks, and no other world's: 16 characters."""
    rank: int


class RecordMemory:
    """This process's; for one thread at a time."""

    def __init__(self) -> None:
        self._fd = os.memfd_create(f"{_NAME}.{os.getpid()}", os.MFD_CLOEXEC)

    def mark(self, mark: Mark) -> None:
        """Let others see that the process is this rank; what was put there goes.

        Raises:
            OSError: no descriptor is left; then they do not.
        """
        name = f"{_NAME}.{os.getpid()}.{mark.world}.{mark.rank}"
        named = os.memfd_create(name, os.MFD_CLOEXEC)
        # The number stays: somebody may be about to write there.
        os.dup2(named, self._fd, inheritable=False)
        os.close(named)

    def write(self, record: str) -> None:
        """Put `record`, the JSON of one object, in place of the one before.

        Raises:
            OSError: there is no memory for it; then there is none.
        """
        # Who reads meanwhile gets parts of two records, which may look like one. The
        # check is wrong then, so it reads again.
        text = record.encode()
        os.ftruncate(self._fd, 0)
        rest, at = memoryview(_check(text) + text), 0
        while rest:
            written = os.pwrite(self._fd, rest, at)
            rest, at = rest[written:], at + written

    def close(self) -> None:
        """Nobody finds it from now on."""
        os.close(self._fd)


def answers(pid: int) -> bool:
    """Whether that process answers SIGUSR2 with its record, and lives on.

    It may have become another program since it said so, or have a handler no more: the
    kernel knows.
    """
    return has_handler(pid, signal.SIGUSR2) and bool(_found(pid)[0])


def mark_of(pid: int) -> Mark | None:
    """Which rank that process says it is; None: it does not, or answers nobody."""
    if not has_handler(pid, signal.SIGUSR2):
        return None
    world, _, rank = _found(pid)[1].partition(".")
    is_rank = rank.isascii() and rank.isdecimal() and len(rank) <= _MOST_DIGITS
    return Mark(world, int(rank)) if is_rank and len(world) == _LENGTH else None


def record_in(pid: int) -> str:
    """What the process has put there last; empty: nothing that can be read whole."""
    with suppress(OSError, ValueError):
        told = read_regular(_found(pid)[0])
        record = told[_CHECK:]
        if told.startswith(_check(record.encode()).decode()):
            return record
    return ""


def _check(record: bytes) -> bytes:
    return f"{zlib.crc32(record):0{_CHECK}x}".encode()


def read_regular(path: str) -> str:
    """What a file has; of a pipe or the like nothing, which could be waited for.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text.
    """
    with open(path, encoding="utf-8", opener=open_at_once) as file:
        found = os.fstat(file.fileno())
        is_fit = stat.S_ISREG(found.st_mode) and found.st_size <= _LONGEST
        return file.read() if is_fit else ""


def _found(pid: int) -> tuple[str, str]:
    """By which path others open it, and what its name says of the rank."""
    return memory_file(pid, _NAME)


def open_at_once(path: str, flags: int) -> int:
    """The opener of `open`, which then waits for nobody at a pipe's other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def has_handler(pid: int, number: int) -> bool:
    """Whether the process handles that signal, be it by Python or not."""
    try:
        caught = status_of(pid, "SigCgt")
    except OSError:
        return False
    return bool(int(caught or "0", 16) >> (number - 1) & 1)
