"""TableStore: a Store over a table; a subclass defines its place and the waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from allhands._C import StoreTable
from allhands.errors import QueueEmptyError
from allhands.options import as_timedelta
from allhands.store.arguments import as_keys
from allhands.store.base import Store
from allhands.store.found import Found, found_in
from allhands.store.limits import wait_timeout
from allhands.store.route import Route

__all__ = ["TableStore"]

T = TypeVar("T")


class TableStore(Store):
    """A store whose state is a table; a subclass defines its place and the waits."""

    # The table checks keys and values.
    _table: StoreTable

    def _do(self, act: Callable[..., T], *args: Any) -> T:
        """Call `act`, a method of the table, on the current table, atomically.

        When this returns, the changes have reached all users of the store.
        """
        raise NotImplementedError

    def _wait_until(
        self, limit: timedelta, act: Callable[..., T | None], *args: Any
    ) -> T | None:
        """Repeat `act` until its result is not None; None after `limit`."""
        raise NotImplementedError

    def _route(self) -> Route:
        return Route()

    def _survey(self, prefix: str, count: int) -> bytes:
        return bytes(self._do(self._found, prefix, count))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: every process makes its own")

    def set(self, key: str, value: str | bytes) -> None:
        self._do(self._table.set, key, value)

    def get(self, key: str) -> bytes:
        value = self._do(self._table.find, key)
        if value is None:  # otherwise the limit is not needed
            value = self._wait_until(self.timeout, self._table.find, key)
        if value is None:
            raise wait_timeout([key], self.timeout)
        return value

    def add(self, key: str, amount: int) -> int:
        return self._do(self._table.add, key, amount)

    def append(self, key: str, value: str | bytes) -> None:
        self._do(self._table.append, key, value)

    def check(self, keys: Sequence[str]) -> bool:
        keys = keys if type(keys) is list else as_keys(keys)
        return self._do(self._table.contains_all, keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        keys = keys if type(keys) is list else as_keys(keys)
        given = None if timeout is None else as_timedelta(timeout)
        if self._do(self._table.contains_all, keys):
            return
        limit = self.timeout if given is None else given
        keys = list(keys)
        if self._wait_until(limit, self._contains_all_or_none, keys) is None:
            raise wait_timeout(keys, limit)

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        return self._do(self._table.compare_set, key, expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        return self._do(self._table.delete_key, key)

    def num_keys(self) -> int:
        return self._do(self._table.num_keys)

    def list_keys(self) -> list[str]:
        return self._do(self._table.list_keys)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of `keys` at one moment, in order; wait until all exist.

        Raises:
            DistStoreError: `timeout` passed first.
        """
        keys, limit = as_keys(keys), self.timeout
        values = self._wait_until(limit, self._table.find_all, keys)
        if values is None:
            raise wait_timeout(keys, limit)
        return values

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set each of `keys` to the value at its position in `values`, all at once.

        Raises:
            ValueError: `keys` and `values` differ in length; nothing is set.
        """
        self._do(self._table.set_all, as_keys(keys), list(values))

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._do(self._table.push, key, value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        limit = self.timeout if block else timedelta(0)
        oldest = self._wait_until(limit, self._table.pop, key)
        if oldest is not None:
            return oldest
        if block:
            raise wait_timeout([key], limit)
        raise QueueEmptyError(f"queue is empty, key: {key}")

    def queue_len(self, key: str) -> int:
        return self._do(self._table.queue_length, key)

    def has_extended_api(self) -> bool:
        """Return True: all of these work."""
        return True

    def _found(self, prefix: str, count: int) -> list[Found]:
        find = self._table.find
        return [found_in(find(f"{prefix}{number}")) for number in range(count)]

    def _contains_all_or_none(self, keys: list[str]) -> bool | None:
        return self._table.contains_all(keys) or None
