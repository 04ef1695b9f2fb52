"""The flight memory of another process, read from outside.

csrc/allhands/base/flight_memory.hpp describes its layout. The process writes during the
reading, and may be broken, or not a rank at all. So all data is checked, and data that
does not fit is left out. The memory is read by pread(2) and never mapped: if the file
becomes shorter, only the data ends, and not the reader.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from allhands import _C
from allhands.backends.printable import printable
from allhands.elastic.memory_file import memory_file

__all__ = ["FlightFile", "GroupView", "Header", "Operation", "open_memory"]

_NAME = "allhands.flight"
_MAGIC, _VERSION = b"ahflight", 1
_HEADER = struct.Struct("<8sIIIIIIII16s64s")
_ROWS_AT, _MOST_ROWS = 4096, 1024
_ROW = struct.Struct("<QQIIQQQ16x QQ48x QQ48x iiQ48s")
_SLOT = struct.Struct("<QQQQQQQq")
_MOST_SLOTS = 1 << 30
_MOST_RANKS = 1 << 24

_WRITING, _STARTED = 1, 3  # higher states have ended
# How many slots are read before and after the last record: of collectives, which run
# one after the other, and of messages, of which older ones may not have ended yet.
_AROUND = ((2, 4), (24, 8))

_COLLECTIVES = [_C.collective_name(number) for number in range(256)]
_MESSAGES = ["message", "send", "recv", "probe", *["message"] * 252]


class Header(NamedTuple):
    """The world and rank of a process."""

    world: str
    rank: int
    size: int
    host: str


class Operation(NamedTuple):
    """One record of a ring, as it was read."""

    number: int
    is_message: bool
    is_under_way: bool
    op: str
    is_async: bool
    partner: int
    """The root or peer, a group rank; -1 for none, or for any."""
    started: int
    ended: int
    """By `_C.ticks_now()`; 0 if not yet, or unknown."""


class GroupView(NamedTuple):
    """A group of a process at one moment."""

    key: int
    """The same on all its ranks."""
    generation: int
    name: str
    rank: int
    size: int
    num_collectives: int
    """The number begun so far, which is the number of the last one."""
    num_messages: int
    num_bytes: int
    num_waiting: int
    """Threads that wait for a message or for an asynchronous operation."""
    operations: tuple[Operation, ...]
    """The operations under way, and the last of each kind."""

    @property
    def under_way(self) -> Iterator[Operation]:
        """The operations that have begun and not ended."""
        return (each for each in self.operations if each.is_under_way)


class _Row(NamedTuple):
    generation: int
    key: int
    rank: int
    size: int
    collectives_at: int
    messages_at: int
    num_slots: int
    num_collectives: int
    collective_bytes: int
    num_messages: int
    message_bytes: int
    num_in_messages: int
    num_in_works: int
    reserved: int
    name: bytes


def open_memory(pid: int) -> FlightFile | None:
    """Open the memory of process `pid`; None if there is none for this user."""
    path, _ = memory_file(pid, _NAME)
    with suppress(OSError):
        if path:
            return FlightFile(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    return None


class FlightFile:
    """The flight memory of one process; for one thread at a time.

    It stays when the process has ended.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._num_rows = 0  # as many as there were last

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def header(self) -> Header | None:
        """Return the header; None if the process is no rank yet or has no memory."""
        first, second = self._read(_HEADER.size, 0), self._read(_HEADER.size, 0)
        # Between the two it may have made a group, which does not matter.
        if len(first) < _HEADER.size or first[24:] != second[24:]:
            return None
        told = _HEADER.unpack(first)
        magic, version, row_bytes, _, _, generation, rank, size, _, world, host = told
        is_one = magic == _MAGIC and version == _VERSION and row_bytes == _ROW.size
        is_set = generation != 0 and generation % 2 == 0
        if not (is_one and is_set and rank < size <= _MOST_RANKS):
            return None
        return Header(_text(world), rank, size, _text(host))

    def groups(self) -> list[GroupView]:
        """Return the current groups of the process."""
        return [
            view
            for row in self._rows()
            if row.generation % 2 == 1 and (view := self._view(row)) is not None
        ]

    def _rows(self) -> Iterator[_Row]:
        """Return the rows, by one reading of the file unless there are more by now."""
        read = self._read(_ROWS_AT + self._num_rows * _ROW.size, 0)
        if len(read) < _HEADER.size:
            return iter(())
        num_rows = min(_HEADER.unpack_from(read)[3], _MOST_ROWS)
        if num_rows > self._num_rows:
            self._num_rows = num_rows
            read = self._read(_ROWS_AT + num_rows * _ROW.size, 0)
        end = min(len(read) - _ROWS_AT, num_rows * _ROW.size) // _ROW.size * _ROW.size
        rows = memoryview(read)[_ROWS_AT : _ROWS_AT + max(0, end)]
        return (_Row(*told) for told in _ROW.iter_unpack(rows))

    def _view(self, row: _Row) -> GroupView | None:
        num_slots = row.num_slots
        is_power = num_slots & (num_slots - 1) == 0 and num_slots <= _MOST_SLOTS
        if not (is_power and row.rank < row.size <= _MOST_RANKS):
            return None
        operations = (
            *self._ring(row.collectives_at, num_slots, row.num_collectives, False),
            *self._ring(row.messages_at, num_slots, row.num_messages, True),
        )
        # The counters may lag for a moment, or be set back.
        last = [row.num_collectives, row.num_messages]
        for each in operations:
            if each.number > last[each.is_message]:
                last[each.is_message] = each.number
        return GroupView(
            row.key,
            row.generation,
            _text(row.name),
            row.rank,
            row.size,
            last[False],
            last[True],
            row.collective_bytes + row.message_bytes,
            max(0, row.num_in_messages) + max(0, row.num_in_works),
            operations,
        )

    def _ring(
        self, at: int, num_slots: int, last: int, is_message: bool
    ) -> list[Operation]:
        """Return the operations under way near the end of a ring, and the last one."""
        if at == 0 or num_slots == 0 or last == 0:
            return []
        behind, ahead = _AROUND[is_message]
        count = min(num_slots, behind + ahead)
        begin = max(0, last - behind) if count < num_slots else 0
        first = begin % num_slots
        around = max(0, first + count - num_slots)  # slots that are at the begin
        read = self._read((count - around) * _SLOT.size, at + first * _SLOT.size)
        if around:
            read += self._read(around * _SLOT.size, at)
        whole = len(read) // _SLOT.size * _SLOT.size
        under_way, newest, newest_at = list[int](), 0, 0
        marks = memoryview(read)[:whole].cast("Q")[:: _SLOT.size // 8].tolist()
        for index, mark in enumerate(marks):
            number = mark >> 3
            if number == 0 or (number - first - index) % num_slots:
                continue
            if _WRITING <= mark & 7 <= _STARTED:
                under_way.append(index)
            elif mark > newest:
                newest, newest_at = mark, index
        told = (*under_way, newest_at) if newest else under_way
        return [
            _operation(_SLOT.unpack_from(read, index * _SLOT.size), is_message)
            for index in told
        ]

    def _read(self, size: int, at: int) -> bytes:
        """Read as much as there is; nothing for an invalid range."""
        try:
            return os.pread(self._fd, size, at)
        except (OSError, OverflowError):
            return b""


def _operation(told: tuple[int, ...], is_message: bool) -> Operation:
    mark, _, started, ended, _, what, _, _ = told
    state = mark & 7
    if state == _WRITING:  # the other fields are those of the previous record
        return Operation(mark >> 3, is_message, True, "", False, -1, 0, 0)
    partner = what >> 32
    return Operation(
        mark >> 3,
        is_message,
        state <= _STARTED,
        (_MESSAGES if is_message else _COLLECTIVES)[what & 0xFF],
        bool(what >> 24 & 1),
        partner if partner < 1 << 31 else -1,
        started,
        0 if state <= _STARTED else ended,
    )


@lru_cache(1024)
def _text(read: bytes) -> str:
    """Return the text for people, without control characters."""
    return printable(read.partition(b"\0")[0].decode(errors="replace"), kept="")
