"""What a store holds, in memory, and a Store over such a table.

A `Table` is the semantics of a store without its I/O: single-threaded, never waiting.
Whatever changes it goes through `change`, which also notes the change in the table's
journal; a store that has to pass changes on (to a file) takes them from there.
`TableStore` adds waiting and locking through two methods that its subclass gives.
"""

from __future__ import annotations

import enum
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import NoReturn, TypeVar

from allhands.errors import QueueEmptyError
from allhands.store.base import (
    INT64_MAX,
    INT64_MIN,
    Store,
    as_bytes,
    as_int64,
    as_items,
    as_key,
    as_keys,
    as_timeout,
    poll,
    wait_timeout,
)

__all__ = ["Change", "ChangeKind", "Table", "TableStore"]

T = TypeVar("T")


class ChangeKind(enum.IntEnum):
    """How a table changes. The numbers are part of FileStore's file format."""

    SET = 1
    APPEND = 2
    DELETE = 3
    PUSH = 4
    POP = 5


Change = tuple[ChangeKind, str, bytes]


class Table:
    """Values and queues by key. Not thread-safe: its store locks."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        # A queue exists while it is not empty.
        self.queues: dict[str, deque[bytes]] = {}
        self.journal: list[Change] = []

    def apply(self, kind: ChangeKind, key: str, value: bytes) -> None:
        """Make a change that its maker checked; it is not journalled."""
        if kind is ChangeKind.SET:
            self.values[key] = value
        elif kind is ChangeKind.APPEND:
            self.values[key] = self.values.get(key, b"") + value
        elif kind is ChangeKind.DELETE:
            del self.values[key]
        elif kind is ChangeKind.PUSH:
            self.queues.setdefault(key, deque()).append(value)
        else:
            self.queues[key].popleft()
            if not self.queues[key]:
                del self.queues[key]

    def change(self, kind: ChangeKind, key: str, value: bytes = b"") -> None:
        """Make a change and note it in the journal."""
        self.apply(kind, key, value)
        self.journal.append((kind, key, value))

    def has(self, keys: Sequence[str]) -> bool:
        """Whether every key has a value or a queue."""
        return all(key in self.values or key in self.queues for key in keys)

    def values_of(self, keys: Sequence[str]) -> list[bytes] | None:
        """The values of all keys, or None while one is missing."""
        if all(key in self.values for key in keys):
            return [self.values[key] for key in keys]
        return None

    def add(self, key: str, amount: int) -> int:
        """See `Store.add`."""
        total = _wrapped(self._count(key) + amount)
        self.change(ChangeKind.SET, key, b"%d" % total)
        return total

    def _count(self, key: str) -> int:
        value = self.values.get(key, b"0")
        # 19 digits are the most that an int64 has.
        if re.fullmatch(rb"[+-]?[0-9]{1,19}", value):
            count = int(value)
            if INT64_MIN <= count <= INT64_MAX:
                return count
        raise ValueError(
            f"add: the value of key {key!r} is not an int64: {value[:40]!r}"
        )

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """See `Store.compare_set`."""
        if key not in self.values and expected:
            return expected
        current = self.values.get(key, b"")
        if current != expected:
            return current
        self.change(ChangeKind.SET, key, desired)
        return desired

    def delete(self, key: str) -> bool:
        """See `Store.delete_key`."""
        if key not in self.values:
            return False
        self.change(ChangeKind.DELETE, key)
        return True

    def pop(self, key: str) -> bytes | None:
        """The oldest value of the queue `key`, removed; None if there is none."""
        if key not in self.queues:
            return None
        oldest = self.queues[key][0]
        self.change(ChangeKind.POP, key)
        return oldest


class TableStore(Store):
    """A store whose state is a table; the subclass says where that is and who waits."""

    def _transaction(self) -> AbstractContextManager[Table]:
        """The table as it is now, for this thread alone; its changes are kept."""
        raise NotImplementedError

    def _until(self, probe: Callable[[Table], T | None], limit: timedelta) -> T | None:
        """What `probe` finds, tried until it is not None; None after `limit`."""
        for _ in poll(limit):
            with self._transaction() as table:
                found = probe(table)
            if found is not None:
                return found
        return None

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: every process makes its own")

    def set(self, key: str, value: str | bytes) -> None:
        self.multi_set([key], [value])

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def add(self, key: str, amount: int) -> int:
        key = as_key(key)
        amount = as_int64(amount)
        with self._transaction() as table:
            return table.add(key, amount)

    def append(self, key: str, value: str | bytes) -> None:
        self._change(ChangeKind.APPEND, key, value)

    def check(self, keys: Sequence[str]) -> bool:
        keys = as_keys(keys)
        with self._transaction() as table:
            return table.has(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        keys = as_keys(keys)
        limit = self.timeout if timeout is None else as_timeout(timeout)
        if self._until(lambda table: table.has(keys) or None, limit) is None:
            raise wait_timeout(keys, limit)

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        key = as_key(key)
        expected, desired = as_bytes(expected_value), as_bytes(desired_value)
        with self._transaction() as table:
            return table.compare_set(key, expected, desired)

    def delete_key(self, key: str) -> bool:
        key = as_key(key)
        with self._transaction() as table:
            return table.delete(key)

    def num_keys(self) -> int:
        with self._transaction() as table:
            return len(table.values)

    def list_keys(self) -> list[str]:
        with self._transaction() as table:
            return list(table.values)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of `keys` at one moment, in order; waits until all exist.

        Raises:
            DistStoreError: `timeout` passed first.
        """
        keys, limit = as_keys(keys), self.timeout
        values = self._until(lambda table: table.values_of(keys), limit)
        if values is None:
            raise wait_timeout(keys, limit)
        return values

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set each of `keys` to the value at its position in `values`, all at once.

        Raises:
            ValueError: `keys` and `values` differ in length; nothing is set.
        """
        items = as_items(keys, values)
        with self._transaction() as table:
            for key, value in items:
                table.change(ChangeKind.SET, key, value)

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._change(ChangeKind.PUSH, key, value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        key = as_key(key)
        limit = self.timeout if block else timedelta(0)
        oldest = self._until(lambda table: table.pop(key), limit)
        if oldest is not None:
            return oldest
        if block:
            raise wait_timeout([key], limit)
        raise QueueEmptyError(f"queue is empty, key: {key}")

    def queue_len(self, key: str) -> int:
        key = as_key(key)
        with self._transaction() as table:
            return len(table.queues.get(key, ()))

    def has_extended_api(self) -> bool:
        """True: all of it works."""
        return True

    def _change(self, kind: ChangeKind, key: str, value: str | bytes) -> None:
        ((key, data),) = as_items([key], [value])
        with self._transaction() as table:
            table.change(kind, key, data)


def _wrapped(number: int) -> int:
    return (number - INT64_MIN) % (1 << 64) + INT64_MIN
