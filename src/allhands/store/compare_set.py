"""Builds other operations from `Store.compare_set` alone, for stores with little more.

`compare_set` returns the value that a key has afterwards. So a caller cannot tell its
own success from that of another caller who set the same value: two callers that add 1
to 5 would both see 6. Therefore a caller that replaces a value first takes a lock, the
key `<key>/lock`. While the lock is taken, this key holds a token that only its owner
has. While the lock is free, the key is empty.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from allhands.errors import DistStoreError
from allhands.store.limits import poll

__all__ = ["exists", "look", "replace"]

# s. A caller holds the lock for two calls of the store. One that holds it for so long
# was killed.
_ABANDONED_AFTER = 10.0


class _Swappable(Protocol):
    @property
    def timeout(self) -> timedelta: ...

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes: ...


def exists(store: _Swappable, key: str) -> bool:
    """Return whether `key` has a value now."""
    return look(store, key) is not None


def look(store: _Swappable, key: str) -> bytes | None:
    """Return the value of `key`, or None, without waiting and without a change."""
    token = _token()  # no key has this value, so compare_set changes none
    found = store.compare_set(key, token, token)
    return None if found == token else found


def replace(
    store: _Swappable, key: str, make: Callable[[bytes | None], bytes]
) -> bytes:
    """Replace the value of `key` by `make(value)`; return the new value.

    `make` gets None if the key is missing, and may be called several times. No change
    by another caller of `replace`, `set` or `compare_set` is lost.

    Raises:
        DistStoreError: other callers held the lock of `key` for the timeout of `store`.
    """
    with _locked(store, key):
        while True:
            old = look(store, key)
            new = make(old)
            if store.compare_set(key, old or b"", new) == new:
                return new


@contextmanager
def _locked(store: _Swappable, key: str) -> Iterator[None]:
    lock, mine = f"{key}/lock", _token()
    holder, since = b"", time.monotonic()
    for _ in poll(store.timeout):
        is_abandoned = time.monotonic() - since > _ABANDONED_AFTER
        found = store.compare_set(lock, holder if is_abandoned else b"", mine)
        if found == mine:
            break
        if found != holder or is_abandoned:
            holder, since = found, time.monotonic()
    else:
        limit = store.timeout.total_seconds()
        raise DistStoreError(
            f"others held the lock of key {key!r} for {limit:g} s (the store's "
            f"timeout); it is the key {lock!r}"
        )
    try:
        yield
    finally:
        store.compare_set(lock, mine, b"")


def _token() -> bytes:
    return os.urandom(16).hex().encode()
