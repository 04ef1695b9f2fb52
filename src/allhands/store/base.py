"""The Store interface: a small key-value database that the ranks of a job share.

Keys are str, values are bytes. A subclass gives `get`, `set` and `compare_set`. Made of
these are `add`, `append`, `check`, `wait`, `barrier`, `multi_get` and `multi_set`; a
subclass that can do better overrides them. What cannot be made of them (`delete_key`,
`list_keys`, the queues, `clone`) says NotImplementedError until the subclass gives it.

Only the caller's own store object gets what the caller passes; whatever reaches it
through another object (a PrefixStore, a group) has its values as bytes.

Every wait is interruptible: it sleeps in slices, so Ctrl-C acts within half a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

from allhands.errors import DistStoreError
from allhands.options import as_timedelta
from allhands.store.arguments import (
    as_bytes,
    as_count,
    as_int64,
    as_items,
    as_key,
    as_keys,
    wrapped,
)
from allhands.store.compare_set import exists, look, replace
from allhands.store.found import Found
from allhands.store.hook import cover
from allhands.store.limits import (
    DEFAULT_TIMEOUT,
    in_ms,
    poll,
    wait_timeout,
)
from allhands.store.route import Route

__all__ = ["Store"]

# Far below any count of arrivals, and small enough that a million of them do not wrap.
_ABANDONED = -(1 << 40)


class Store:
    """A key-value store that all ranks of a job see alike; made to be subclassed.

    Every operation is atomic with respect to the others. Operations that wait do so for
    at most `timeout` (300 s until `set_timeout` changes it) and then raise
    `DistStoreError`. Threads may share an object unless its class says otherwise.

    A subclass has to give `get`, `set` and `compare_set`; `add`, `append`, `check`,
    `wait`, `multi_get`, `multi_set` and `barrier` are made of these where it does not
    give them. (`add` and `append` then use the key `<key>/lock`, too.) The rest raises
    NotImplementedError. From a `PrefixStore` and from groups it gets all values as
    bytes, whatever their callers gave.

    Example:
        ```python
        store = dist.HashStore()
        store.set("answer", "42")
        store.get("answer")  # b"42"
        ```
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cover(cls)

    # On the class, so that a subclass need not call Store.__init__.
    _timeout: timedelta = DEFAULT_TIMEOUT

    @property
    def timeout(self) -> timedelta:
        """How long an operation without a limit of its own waits."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set `timeout` for later operations of this object, not of its clones.

        It may be a float, of seconds, here and in the other methods that take one.

        Raises:
            TypeError: `timeout` is not a timedelta.
        """
        self._timeout = as_timedelta(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        """Set `key` to `value`, whether or not it exists.

        When it returns, every other user of the store sees the value.

        Raises:
            TypeError: `value` is neither str nor bytes.
        """
        self._lacks("set")

    def get(self, key: str) -> bytes:
        """The value of `key`; waits until there is one.

        Raises:
            DistStoreError: `timeout` passed first.
        """
        self._lacks("get")

    def add(self, key: str, amount: int) -> int:
        """Add `amount` to the counter `key` and return the new value.

        A key that does not exist counts as 0. `get` shows the counter in ASCII, and
        `set` to such a text is understood. Counters are int64 and wrap around.

        Raises:
            ValueError: the value of `key` is not a number; it stays as it is.
        """
        self._needs_compare_set("add")
        key, amount = as_key(key), as_int64(amount)

        def added(value: bytes | None) -> bytes:
            count = 0 if value is None else as_count(key, value)
            return b"%d" % wrapped(count + amount)

        return int(replace(self, key, added))

    def append(self, key: str, value: str | bytes) -> None:
        """Append `value` to the value of `key`, which is created if missing."""
        self._needs_compare_set("append")
        more = as_bytes(value)
        replace(self, as_key(key), lambda value: (value or b"") + more)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of `keys` exist now, as a value or as a queue that is not empty.

        It never waits.
        """
        self._needs_compare_set("check")
        return all(exists(self, key) for key in as_keys(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all of `keys` exist, in the sense of `check`.

        Args:
            keys: a list or another collection; a lone str is a TypeError.
            timeout: the limit of this call; None means `Store.timeout`. With
                `timedelta(0)` it looks once.

        Raises:
            DistStoreError: the limit passed first. The message lists all of `keys`.
        """
        keys = as_keys(keys)
        limit = self.timeout if timeout is None else as_timedelta(timeout)
        for _ in poll(limit):
            if self.check(keys):
                return
        raise wait_timeout(keys, limit)

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Set `key` to `desired_value` if its value is `expected_value`.

        A missing key equals the empty value: with an empty `expected_value` it is
        created. With another `expected_value` nothing is created.

        Returns:
            The value of `key` after the call; `expected_value` if there is no such key.
        """
        self._lacks("compare_set")

    def delete_key(self, key: str) -> bool:
        """Delete `key`; True if it existed. A queue is not a key and stays."""
        self._lacks("delete_key")

    def num_keys(self) -> int:
        """How many keys the store holds; queues are not counted."""
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        """All keys of the store, in no order; queues are not among them."""
        self._lacks("list_keys")

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of `keys`, in order; waits until all exist.

        Raises:
            DistStoreError: `timeout` passed first.
        """
        keys = as_keys(keys)
        with suppress(NotImplementedError):  # then `get` waits for one after the other
            self.wait(keys)
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set each of `keys` to the value at its position in `values`.

        Raises:
            ValueError: `keys` and `values` differ in length; nothing is set.
        """
        for key, value in as_items(keys, values):
            self.set(key, value)

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Append `value` to the queue `key`, which is created if missing."""
        self._lacks("queue_push")

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Remove and return the oldest value of the queue `key`.

        Raises:
            DistStoreError: `block`, and no value came within `timeout`.
            QueueEmptyError: not `block`, and the queue is empty.
        """
        self._lacks("queue_pop")

    def queue_len(self, key: str) -> int:
        """How many values the queue `key` holds; 0 if there is none."""
        self._lacks("queue_len")

    def barrier(
        self, key: str, world_size: int, timeout: timedelta | None = None
    ) -> None:
        """Wait until `world_size` callers have called it with this `key`.

        It may be called again with the same key, for another round. It uses the keys
        `<key>/num_members` and `<key>/last_member`.

        Args:
            key: the name of the barrier.
            world_size: how many callers have to come, at least 1.
            timeout: the limit of this call; None means `Store.timeout`.

        Raises:
            DistStoreError: the limit passed first, for this caller or an earlier one:
                the key is then spent, and later callers learn it at once.
        """
        if world_size < 1:
            raise ValueError(f"barrier: world_size must be positive, got {world_size}")
        limit = self.timeout if timeout is None else as_timedelta(timeout)
        members, last = f"{key}/num_members", f"{key}/last_member"
        arrival = self.add(members, 1)
        if arrival < 1:
            raise DistStoreError(
                f"barrier was abandoned by a caller that had waited, key: {key}; "
                "use another key"
            )
        # Rounds after the first have a key of their own, so that no caller passes on
        # the mark of an earlier round.
        turn, place = divmod(arrival - 1, world_size)
        mark = f"{last}/{turn}" if turn else last
        if place == world_size - 1:
            self.set(mark, b"1")
            return
        try:
            self.wait([mark], limit)
        except (DistStoreError, KeyboardInterrupt) as error:
            self.add(members, _ABANDONED)
            if isinstance(error, KeyboardInterrupt):
                raise
            raise DistStoreError(
                f"barrier timeout after {in_ms(limit)}ms, key: {key}, "
                f"{place + 1} of {world_size} had come before this caller waited"
            ) from error

    def clone(self) -> Store:
        """Another object on the same data, with a connection and a timeout of its own.

        What one of the two waits for does not hold up the other.
        """
        self._lacks("clone")

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get`, `multi_set` and the queues work natively."""
        return False

    def _look(self, key: str) -> bytes | None:
        """The value of `key` now, None if it is missing."""
        try:
            return look(self, key)
        except NotImplementedError:  # it cannot compare
            return self.get(key) if self.check([key]) else None

    def _get_within(self, key: str, limit: timedelta) -> bytes | None:
        """The value of `key`; waits for it. None if it has vanished meanwhile.

        Raises:
            RuntimeError: `limit` passed first.
        """
        self.wait([key], limit)
        return self._look(key)

    def _survey(self, prefix: str, count: int) -> bytes:
        """What is now at the keys `prefix` + "0" and so on: for each a `Found`."""

        def found(key: str) -> Found:
            value = self._look(key)
            if value is None:
                return Found.NOTHING
            return Found.SOME_VALUE if value else Found.EMPTY_VALUE

        return bytes(found(f"{prefix}{number}") for number in range(count))

    def _route(self) -> Route | None:
        """How this process reaches the data; None where that is not known."""
        return None

    def _leave_last_will(self, key: str, value: bytes) -> None:
        """Delete `key` now; it is set to `value` when this process ends, if it can be.

        A store that has a connection to a server can do that.
        """

    def _withdraw_last_will(self) -> None:
        """Have it that nothing is set when this process ends."""

    def _needs_compare_set(self, method: str) -> None:
        if type(self).compare_set is Store.compare_set:
            self._lacks(method, " (nor compare_set, which it can be made of)")

    def _lacks(self, method: str, remark: str = "") -> NoReturn:
        name = type(self).__name__
        raise NotImplementedError(f"{name} does not implement {method}{remark}")


cover(Store)
