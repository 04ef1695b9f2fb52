"""HashStore: a store inside one process, for ranks that are threads, and for tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from allhands._C import StoreTable
from allhands.store.limits import LOOK_S
from allhands.store.table import TableStore
from allhands.store.watch import look

__all__ = ["HashStore"]

T = TypeVar("T")


class HashStore(TableStore):
    """A store in the memory of this process. Threads may share it; processes cannot.

    After a fork the child has its own copy, which the parent does not see.

    Example:
        ```python
        store = dist.HashStore()
        dist.init_process_group(store=store, rank=0, world_size=1)
        ```
    """

    def __init__(self) -> None:
        self._table = StoreTable()

    def __repr__(self) -> str:
        return "HashStore()"

    def clone(self) -> HashStore:
        """Return another object on the same data, with its own timeout."""
        other = HashStore()
        other._table = self._table
        other._timeout = self._timeout
        return other

    def get(self, key: str) -> bytes:
        value = self._table.find(key)
        return super().get(key) if value is None else value

    def set(self, key: str, value: str | bytes) -> None:
        self._table.set(key, value)

    def _do(self, act: Callable[..., T], *args: Any) -> T:
        return act(*args)  # one step of the table, which needs no lock

    def _wait_until(
        self, limit: timedelta, act: Callable[..., T | None], *args: Any
    ) -> T | None:
        table = self._table
        begin, seconds = time.monotonic(), limit.total_seconds()
        next_look = LOOK_S
        while True:
            seen = table.num_changes
            found = act(*args)
            if found is not None:
                return found
            waited = time.monotonic() - begin
            if waited >= seconds:
                return None
            if waited >= next_look:
                look(waited, seconds)
                next_look = waited + LOOK_S
            table.await_change(seen, min(next_look, seconds) - waited)
