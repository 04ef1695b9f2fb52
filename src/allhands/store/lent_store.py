"""LentStore: a store of this package as a store of torch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed

from allhands.store import Store

__all__ = ["LentStore"]


class LentStore(torch.distributed.Store):  # type: ignore[misc]
    """The store of a world, for the groups that torch makes in the world.

    torch's C++ calls these methods, two of them by other names than its Python code. It
    can do so as long as Python code holds the object. The object is as thread-safe as
    `store`.

    Args:
        store: any store of this package.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        super().set_timeout(store.timeout)

    def set(self, key: str, value: Any) -> None:
        """See `allhands.Store.set`."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """See `allhands.Store.get`."""
        return self._store.get(key)

    def add(self, key: str, amount: int) -> int:
        """See `allhands.Store.add`."""
        return self._store.add(key, amount)

    def append(self, key: str, value: Any) -> None:
        """See `allhands.Store.append`."""
        self._store.append(key, value)

    def check(self, keys: Sequence[str]) -> bool:
        """See `allhands.Store.check`."""
        return self._store.check(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """See `allhands.Store.wait`."""
        self._store.wait(keys, self.timeout if timeout is None else timeout)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        """See `allhands.Store.compare_set`."""
        return self._store.compare_set(key, expected, desired)

    def delete_key(self, key: str) -> bool:
        """See `allhands.Store.delete_key`."""
        return self._store.delete_key(key)

    deleteKey = delete_key

    def num_keys(self) -> int:
        """See `allhands.Store.num_keys`."""
        return self._store.num_keys()

    getNumKeys = num_keys

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """See `allhands.Store.multi_get`."""
        return self._store.multi_get(keys)

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """See `allhands.Store.multi_set`."""
        self._store.multi_set(keys, values)

    def has_extended_api(self) -> bool:
        """See `allhands.Store.has_extended_api`."""
        return self._store.has_extended_api()
