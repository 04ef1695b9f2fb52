"""PrefixStore: a part of another store, in which all keys have a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from allhands.store.arguments import as_bytes, as_key, as_keys
from allhands.store.base import Store
from allhands.store.route import Route

__all__ = ["PrefixStore"]


class PrefixStore(Store):
    """The part of `store` whose keys begin with `<prefix>/`.

    `set_timeout` sets the timeout of `store`. A PrefixStore has no state of its own, so
    threads may share it as they may share `store`. If `store` is of your own class, it
    gets every value as bytes, even if the caller passed a str. If the class lacks an
    operation, its `compare_set` is used instead where possible, see `Store`.

    Raises:
        ValueError: `store` is None.

    Example:
        ```python
        store = dist.HashStore()
        dist.PrefixStore("epoch_1", store).set("loss", "0.3")
        store.get("epoch_1/loss")  # b"0.3"
        ```
    """

    def __init__(self, prefix: str, store: Store) -> None:
        if store is None:
            raise ValueError("store argument cannot be None")
        if not isinstance(store, Store):
            raise TypeError(f"store must be a Store, got {store!r}")
        self._prefix = as_key(prefix)
        self._store = store

    @property
    def underlying_store(self) -> Store:
        """The store that holds the prefixed keys."""
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        """The store below all prefixes; programs take this name of torch."""
        store = self._store
        return (
            store._underlying_non_prefix_store
            if isinstance(store, PrefixStore)
            else store
        )

    @property
    def timeout(self) -> timedelta:
        """The timeout of the underlying store."""
        return self._store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of the underlying store."""
        self._store.set_timeout(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(self._key(key), as_bytes(value))

    def get(self, key: str) -> bytes:
        return self._store.get(self._key(key))

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._key(key), amount)

    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(self._key(key), as_bytes(value))

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check(self._keys(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        # A subclass of Store may have only a `wait` without a timeout.
        if timeout is None:
            self._store.wait(self._keys(keys))
        else:
            self._store.wait(self._keys(keys), timeout)

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        expected, desired = as_bytes(expected_value), as_bytes(desired_value)
        return self._store.compare_set(self._key(key), expected, desired)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._key(key))

    def num_keys(self) -> int:
        """Return the number of all keys of the underlying store, with any prefix."""
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        """Return the keys with the prefix, without the prefix."""
        start = self._key("")
        keys = self._store.list_keys()
        return [key.removeprefix(start) for key in keys if key.startswith(start)]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._store.multi_get(self._keys(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        self._store.multi_set(self._keys(keys), [as_bytes(v) for v in values])

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._store.queue_push(self._key(key), as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._key(key), block)

    def queue_len(self, key: str) -> int:
        return self._store.queue_len(self._key(key))

    def barrier(
        self, key: str, world_size: int, timeout: timedelta | None = None
    ) -> None:
        self._store.barrier(self._key(key), world_size, timeout)

    def clone(self) -> PrefixStore:
        """Return the same prefix over a clone of the underlying store."""
        return PrefixStore(self._prefix, self._store.clone())

    def has_extended_api(self) -> bool:
        """Return whether the underlying store has it."""
        return self._store.has_extended_api()

    def __repr__(self) -> str:
        return f"PrefixStore({self._prefix!r}, {self._store!r})"

    def _get_within(self, key: str, limit: timedelta) -> bytes | None:
        return self._store._get_within(self._key(key), limit)

    def _survey(self, prefix: str, count: int) -> bytes:
        return self._store._survey(self._key(prefix), count)

    def _route(self) -> Route | None:
        return self._store._route()

    def _leave_last_will(self, key: str, value: bytes) -> None:
        self._store._leave_last_will(self._key(key), value)

    def _withdraw_last_will(self) -> None:
        self._store._withdraw_last_will()

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{as_key(key)}"

    def _keys(self, keys: Sequence[str]) -> list[str]:
        return [self._key(key) for key in as_keys(keys)]
