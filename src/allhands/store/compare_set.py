"""What can be made of `Store.compare_set` alone, for stores that have little more.

`compare_set` returns the value that a key has afterwards, so a caller cannot tell its
own success from that of another caller who set the same value: two that add 1 to 5
would both see 6. Whoever replaces a value therefore takes a lock first, the key
`<key>/lock`. It holds a token that nobody else has while it is taken, and is empty
while it is free.
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

# s; a lock is held for two calls of the store. Who held one for so long was killed.
_ABANDONED_AFTER = 10.0


class _Swappable(Protocol):
    @property
    def timeout(self) -> timedelta: ...

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes: ...


def exists(store: _Swappable, key: str) -> bool:
    """Whether `key` has a value now."""
    return look(store, key) is not None


def look(store: _Swappable, key: str) -> bytes | None:
    """The value of `key` now, None if it is missing; never waits, changes nothing."""
    token = _token()  # no key has this value, so none gets another
    found = store.compare_set(key, token, token)
    return None if found == token else found


def replace(
    store: _Swappable, key: str, make: Callable[[bytes | None], bytes]
) -> bytes:
    """Replace the value of `key` by what `make` makes of it; returns the new value.

    `make` gets None where the key is missing, and may be called several times. No
    change that another caller of `replace`, `set` or `compare_set` makes is lost.

    Raises:
        DistStoreError: others held the lock of `key` for the timeout of `store`.
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
