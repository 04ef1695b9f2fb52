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
from typing import NamedTuple

from allhands import _C
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
_NO_SLOT = (0,) * 8

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
        header = self._read(_HEADER.size, 0)
        if len(header) < _HEADER.size:
            return iter(())
        num_rows = min(_HEADER.unpack(header)[3], _MOST_ROWS)
        read = self._read(num_rows * _ROW.size, _ROWS_AT)
        whole = read[: len(read) // _ROW.size * _ROW.size]
        return (_Row(*told) for told in _ROW.iter_unpack(whole))

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
        last = [0, 0]
        for each in operations:
            last[each.is_message] = max(last[each.is_message], each.number)
        return GroupView(
            row.key,
            row.generation,
            _text(row.name),
            row.rank,
            row.size,
            max(last[False], row.num_collectives),
            max(last[True], row.num_messages),
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
        under_way = list[tuple[int, ...]]()
        newest: tuple[int, ...] = _NO_SLOT
        for index, told in self._slots(at, num_slots, begin % num_slots, count):
            mark = told[0]
            number = mark >> 3
            if number == 0 or number % num_slots != index:
                continue
            if _WRITING <= mark & 7 <= _STARTED:
                under_way.append(told)
            elif mark > newest[0]:
                newest = told
        ended = [] if newest is _NO_SLOT else [newest]
        return [_operation(told, is_message) for told in (*under_way, *ended)]

    def _slots(
        self, at: int, num_slots: int, begin: int, count: int
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield `count` slots from index `begin` on, around the end, with indexes."""
        before_end = min(count, num_slots - begin)
        for first, some in ((begin, before_end), (0, count - before_end)):
            read = (
                self._read(some * _SLOT.size, at + first * _SLOT.size) if some else b""
            )
            whole = read[: len(read) // _SLOT.size * _SLOT.size]
            yield from enumerate(_SLOT.iter_unpack(whole), first)

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


def _text(read: bytes) -> str:
    """Return the text for people, without control characters."""
    text = read.partition(b"\0")[0].decode(errors="replace")
    return "".join(each if each.isprintable() else "?" for each in text)
