"""HashStore: a store inside one process, for ranks that are threads, and for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from allhands.store.table import Table, TableStore

__all__ = ["HashStore"]

T = TypeVar("T")

# A condition refuses to wait for longer than some years; an hour is as good as that.
_LONGEST_SLEEP = 3600.0


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
        self._table = Table()
        self._changed = threading.Condition()

    def clone(self) -> HashStore:
        """Another object on the same data, with a timeout of its own."""
        other = HashStore()
        other._table, other._changed = self._table, self._changed
        other._timeout = self._timeout
        return other

    @contextmanager
    def _transaction(self) -> Iterator[Table]:
        with self._changed:
            try:
                yield self._table
            finally:
                self._announce()

    def _until(self, probe: Callable[[Table], T | None], limit: timedelta) -> T | None:
        deadline = time.monotonic() + limit.total_seconds()
        with self._changed:
            while (found := probe(self._table)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, _LONGEST_SLEEP))
            self._announce()
            return found

    def _announce(self) -> None:
        """Wake those who wait if the table changed."""
        if self._table.journal:
            self._table.journal.clear()
            self._changed.notify_all()
