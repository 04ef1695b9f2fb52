"""What a store holds, in memory, and a Store over such a table.

A `Table` is the semantics of a store without its I/O: single-threaded, never waiting.
`TableStore` adds waiting and locking through two methods that its subclass gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from allhands.errors import QueueEmptyError
from allhands.store.arguments import (
    as_bytes,
    as_count,
    as_int64,
    as_items,
    as_key,
    as_keys,
    wrapped,
)
from allhands.store.base import Store
from allhands.store.limits import as_timeout, poll, wait_timeout

__all__ = ["Table", "TableStore"]

T = TypeVar("T")


class Table:
    """Values and queues by key. Not thread-safe: its store locks.

    Every change is one of `set`, `append`, `delete`, `push` and `pop`.
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        # A queue exists while it is not empty.
        self.queues: dict[str, deque[bytes]] = {}

    def set(self, key: str, value: bytes) -> None:
        """See `Store.set`."""
        self.values[key] = value

    def append(self, key: str, value: bytes) -> None:
        """See `Store.append`."""
        self.values[key] = self.values.get(key, b"") + value

    def delete(self, key: str) -> bool:
        """See `Store.delete_key`."""
        return self.values.pop(key, None) is not None

    def push(self, key: str, value: bytes) -> None:
        """See `Store.queue_push`."""
        self.queues.setdefault(key, deque()).append(value)

    def pop(self, key: str) -> bytes | None:
        """The oldest value of the queue `key`, removed; None if there is none."""
        queue = self.queues.get(key)
        if queue is None:
            return None
        oldest = queue.popleft()
        if not queue:
            del self.queues[key]
        return oldest

    def set_all(self, items: Sequence[tuple[str, bytes]]) -> None:
        """See `Store.multi_set`."""
        for key, value in items:
            self.set(key, value)

    def add(self, key: str, amount: int) -> int:
        """See `Store.add`."""
        value = self.values.get(key)
        total = amount if value is None else wrapped(as_count(key, value) + amount)
        self.set(key, b"%d" % total)
        return total

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """See `Store.compare_set`."""
        value = self.values.get(key)
        if value is None and expected:
            return expected
        if (value or b"") != expected:
            return value or b""
        self.set(key, desired)
        return desired

    def value_of(self, key: str) -> bytes | None:
        """The value of `key`; None if it is missing."""
        return self.values.get(key)

    def values_of(self, keys: Sequence[str]) -> list[bytes] | None:
        """The values of all keys; None while one is missing."""
        try:
            return [self.values[key] for key in keys]
        except KeyError:
            return None

    def has(self, keys: Sequence[str]) -> bool:
        """Whether every key has a value or a queue."""
        for key in keys:  # not all(): a generator costs more than the look-up
            if key not in self.values and key not in self.queues:
                return False
        return True

    def has_or_none(self, keys: Sequence[str]) -> bool | None:
        """As `has`, but None where it is not so."""
        return self.has(keys) or None

    def num_keys(self) -> int:
        """See `Store.num_keys`."""
        return len(self.values)

    def list_keys(self) -> list[str]:
        """See `Store.list_keys`."""
        return list(self.values)

    def queue_length(self, key: str) -> int:
        """See `Store.queue_len`."""
        return len(self.queues.get(key, ()))


class TableStore(Store):
    """A store whose state is a table; the subclass says where that is and who waits."""

    _table: Table

    def _do(self, act: Callable[..., T], *args: Any) -> T:
        """Call `act`, a method of the table, on the table as it is now, undisturbed.

        What it changed has reached all users of the store when this returns.
        """
        raise NotImplementedError

    def _look(self, act: Callable[..., T], *args: Any) -> T:
        """As `_do`, for an `act` that changes nothing."""
        return self._do(act, *args)

    def _wait_until(
        self, limit: timedelta, act: Callable[..., T | None], *args: Any
    ) -> T | None:
        """What `act` finds, done until that is not None; None after `limit`."""
        for _ in poll(limit):
            found = self._do(act, *args)
            if found is not None:
                return found
        return None

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: every process makes its own")

    def set(self, key: str, value: str | bytes) -> None:
        self._do(self._table.set, as_key(key), as_bytes(value))

    def get(self, key: str) -> bytes:
        key = as_key(key)
        value = self._look(self._table.value_of, key)
        if value is None:  # else no limit is looked at
            value = self._wait_until(self.timeout, self._table.value_of, key)
        if value is None:
            raise wait_timeout([key], self.timeout)
        return value

    def add(self, key: str, amount: int) -> int:
        return self._do(self._table.add, as_key(key), as_int64(amount))

    def append(self, key: str, value: str | bytes) -> None:
        self._do(self._table.append, as_key(key), as_bytes(value))

    def check(self, keys: Sequence[str]) -> bool:
        return self._look(self._table.has, as_keys(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        keys = as_keys(keys)
        limit = self.timeout if timeout is None else as_timeout(timeout)
        if self._look(self._table.has, keys):
            return
        if self._wait_until(limit, self._table.has_or_none, keys) is None:
            raise wait_timeout(keys, limit)

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        expected, desired = as_bytes(expected_value), as_bytes(desired_value)
        return self._do(self._table.compare_set, as_key(key), expected, desired)

    def delete_key(self, key: str) -> bool:
        return self._do(self._table.delete, as_key(key))

    def num_keys(self) -> int:
        return self._look(self._table.num_keys)

    def list_keys(self) -> list[str]:
        return self._look(self._table.list_keys)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of `keys` at one moment, in order; waits until all exist.

        Raises:
            DistStoreError: `timeout` passed first.
        """
        keys, limit = as_keys(keys), self.timeout
        values = self._wait_until(limit, self._table.values_of, keys)
        if values is None:
            raise wait_timeout(keys, limit)
        return values

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set each of `keys` to the value at its position in `values`, all at once.

        Raises:
            ValueError: `keys` and `values` differ in length; nothing is set.
        """
        self._do(self._table.set_all, as_items(keys, values))

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._do(self._table.push, as_key(key), as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        key = as_key(key)
        limit = self.timeout if block else timedelta(0)
        oldest = self._wait_until(limit, self._table.pop, key)
        if oldest is not None:
            return oldest
        if block:
            raise wait_timeout([key], limit)
        raise QueueEmptyError(f"queue is empty, key: {key}")

    def queue_len(self, key: str) -> int:
        return self._look(self._table.queue_length, as_key(key))

    def has_extended_api(self) -> bool:
        """True: all of it works."""
        return True
