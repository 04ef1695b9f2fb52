"""HashStore: a store inside one process, for ranks that are threads, and for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from allhands.store.arguments import as_bytes, as_key
from allhands.store.table import Table, TableStore

__all__ = ["HashStore"]

T = TypeVar("T")

# s; Ctrl-C ends no longer wait: the kernel may give the signal to another thread, and
# the main thread, the only one that acts on it, then sleeps on.
_LONGEST_SLEEP = 0.25


class HashStore(TableStore):
    """A store in the memory of this process. Threads may share it; processes cannot.

    A process that forks gets a copy in the child, which the parent does not see.

    Example:
        ```python
        store = dist.HashStore()
        dist.init_process_group(store=store, rank=0, world_size=1)
        ```
    """

    def __init__(self) -> None:
        self._share(_Room())

    def clone(self) -> HashStore:
        """Another object on the same data, with a timeout of its own."""
        other = HashStore()
        other._share(self._room)
        other._timeout = self._timeout
        return other

    def _share(self, room: _Room) -> None:
        self._room, self._table, self._lock = room, room.table, room.lock
        self._values = room.table.values

    def get(self, key: str) -> bytes:
        # One look-up in a dict is atomic, so what is there needs no lock.
        value = self._values.get(key)
        return super().get(key) if value is None else value

    def set(self, key: str, value: str | bytes) -> None:
        key, data = as_key(key), as_bytes(value)
        with self._lock:
            self._values[key] = data
            if self._room.num_waiting:
                self._room.changed.notify_all()

    def _do(self, act: Callable[..., T], *args: Any) -> T:
        with self._lock:
            if not self._room.num_waiting:
                return act(*args)
            try:
                return act(*args)
            finally:
                self._room.changed.notify_all()

    def _look(self, act: Callable[..., T], *args: Any) -> T:
        with self._lock:
            return act(*args)

    def _wait_until(
        self, limit: timedelta, act: Callable[..., T | None], *args: Any
    ) -> T | None:
        room = self._room
        deadline = time.monotonic() + limit.total_seconds()
        with self._lock:
            room.num_waiting += 1
            try:
                while (found := act(*args)) is None:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return None
                    room.changed.wait(min(left, _LONGEST_SLEEP))
                return found
            finally:
                room.num_waiting -= 1


class _Room:
    """What a store and its clones share."""

    def __init__(self) -> None:
        self.table = Table()
        # A signal handler that uses the store may interrupt a thread that has the lock.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.num_waiting = 0
