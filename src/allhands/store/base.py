"""The Store interface: a small key-value database that the ranks of a job share.

Keys are str, values are bytes. A subclass defines `get`, `set` and `compare_set`. The
class builds `add`, `append`, `check`, `wait`, `barrier`, `multi_get` and `multi_set`
from these; a subclass that can do better overrides them. The other methods
(`delete_key`, `list_keys`, the queues, `clone`) raise NotImplementedError until the
subclass defines them.

A store object gets the values of its own callers as they are. If a value reaches the
store through another object (a PrefixStore, a group), it is bytes.

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
    as_world_size,
    wrapped,
)
from allhands.store.compare_set import exists, look, replace
from allhands.store.found import found_in
from allhands.store.hook import cover
from allhands.store.limits import (
    DEFAULT_TIMEOUT,
    in_ms,
    poll,
    wait_timeout,
)
from allhands.store.route import Route

__all__ = ["Store"]

# Far below any number of arrivals, and small enough that a million of them do not wrap.
_ABANDONED = -(1 << 40)


class Store:
    """A key-value store that looks the same to all ranks of a job; a base class.

    Every operation is atomic with respect to the others. Operations that wait do so for
    at most `timeout` (300 s until `set_timeout` changes it) and then raise
    `DistStoreError`. If a rank of the world dies during such a wait, the wait raises
    `RankFailedError`, in each thread once for each dead rank: the store cannot know
    whether that rank was to write the value. Threads may share an object unless its
    class says otherwise.

    A subclass has to define `get`, `set` and `compare_set`. The methods `add`,
    `append`, `check`, `wait`, `multi_get`, `multi_set` and `barrier` use these unless
    the subclass defines them, too. (`add` and `append` then also use the key
    `<key>/lock`.) The other methods raise NotImplementedError. A `PrefixStore` and
    groups pass all values to the subclass as bytes, whatever type their callers passed.

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

    # A class attribute, so that a subclass need not call Store.__init__.
    _timeout: timedelta = DEFAULT_TIMEOUT

    @property
    def timeout(self) -> timedelta:
        """The limit of operations that have no limit of their own."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set `timeout` for later operations of this object, not of its clones.

        Here and in all other methods, `timeout` may also be a float, in seconds.

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
        """Return the value of `key`; wait until there is one.

        Raises:
            DistStoreError: `timeout` passed first.
        """
        self._lacks("get")

    def add(self, key: str, amount: int) -> int:
        """Add `amount` to the counter `key` and return the new value.

        A key that does not exist counts as 0. `get` returns the counter in ASCII, and
        `set` may set the counter to such a text; there may be blanks around it, and the
        empty text is 0. Counters are int64 and wrap around.

        Raises:
            ValueError: the value of `key` is not a number; it does not change.
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
        """Return whether all of `keys` exist now, as values or as queues with entries.

        It never waits.
        """
        self._needs_compare_set("check")
        return all(exists(self, key) for key in as_keys(keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all of `keys` exist, in the sense of `check`.

        Args:
            keys: a list or another collection; a lone str is a TypeError.
            timeout: the limit of this call; None means `Store.timeout`. With
                `timedelta(0)` the call looks once.

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

        A missing key counts as having the empty value: the call creates it if
        `expected_value` is empty. Otherwise it creates nothing.

        Returns:
            The value of `key` after the call; `expected_value` if there is no such key.
        """
        self._lacks("compare_set")

    def delete_key(self, key: str) -> bool:
        """Delete `key`; return whether it existed. A queue is not a key and stays."""
        self._lacks("delete_key")

    def num_keys(self) -> int:
        """Return the number of keys in the store; queues do not count."""
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        """Return all keys of the store, in no particular order, without queues."""
        self._lacks("list_keys")

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of `keys`, in order; wait until all exist.

        Raises:
            DistStoreError: `timeout` passed first.
        """
        keys = as_keys(keys)
        with suppress(NotImplementedError):  # then `get` waits for each key in turn
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
            DistStoreError: `block` is True, and no value came within `timeout`.
            QueueEmptyError: `block` is False, and the queue is empty.
        """
        self._lacks("queue_pop")

    def queue_len(self, key: str) -> int:
        """Return the number of values in the queue `key`; 0 if there is none."""
        self._lacks("queue_len")

    def barrier(
        self, key: str, world_size: int, timeout: timedelta | None = None
    ) -> None:
        """Wait until `world_size` callers have called it with this `key`.

        Callers may use the same key again for another round. The barrier uses the keys
        `<key>/num_members` and `<key>/last_member`.

        Args:
            key: the name of the barrier.
            world_size: how many callers have to come, at least 1.
            timeout: the limit of this call; None means `Store.timeout`.

        Raises:
            DistStoreError: the limit of this caller or of an earlier one passed first.
                Then the key cannot be used any more, and later callers raise this error
                at once.
        """
        world_size = as_world_size(world_size)
        limit = self.timeout if timeout is None else as_timedelta(timeout)
        members, last = f"{key}/num_members", f"{key}/last_member"
        arrival = self.add(members, 1)
        if arrival < 1:
            raise DistStoreError(
                f"barrier was abandoned by a caller that had waited, key: {key}; "
                "use another key"
            )
        # Each round after the first has its own key, so that no caller passes because
        # of the mark of an earlier round.
        turn, place = divmod(arrival - 1, world_size)
        mark = f"{last}/{turn}" if turn else last
        if place == world_size - 1:
            self.set(mark, b"1")
            return
        try:
            self.wait([mark], limit)
        except DistStoreError as error:
            self.add(members, _ABANDONED)
            raise DistStoreError(
                f"barrier timeout after {in_ms(limit)}ms, key: {key}, "
                f"{place + 1} of {world_size} had come before this caller waited"
            ) from error
        except BaseException:  # of a signal's handler, or a rank has died
            with suppress(RuntimeError):  # the store may have gone with that rank
                self.add(members, _ABANDONED)
            raise

    def clone(self) -> Store:
        """Return another object on the same data, with its own connection and timeout.

        A wait of one object does not hold up the other.
        """
        self._lacks("clone")

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get`, `multi_set` and the queues work natively."""
        return False

    def _look(self, key: str) -> bytes | None:
        """Return the value of `key` now, None if it is missing."""
        try:
            return look(self, key)
        except NotImplementedError:  # the store cannot compare
            return self.get(key) if self.check([key]) else None

    def _get_within(self, key: str, limit: timedelta) -> bytes | None:
        """Wait for `key`; return its value, or None if it has vanished since.

        Raises:
            RuntimeError: `limit` passed first.
        """
        self.wait([key], limit)
        return self._look(key)

    def _survey(self, prefix: str, count: int) -> bytes:
        """Return a `Found` for each of the keys `prefix` + "0", "1", and so on."""
        looks = (self._look(f"{prefix}{number}") for number in range(count))
        return bytes(found_in(value) for value in looks)

    def _route(self) -> Route | None:
        """Return how this process reaches the data; None if this is unknown."""
        return None

    def _leave_last_will(self, key: str, value: bytes) -> None:
        """Delete `key`; when this process ends, it is set to `value` if possible.

        A store with a connection to a server can do this.
        """

    def _withdraw_last_will(self) -> None:
        """Cancel the last will of this process."""

    def _needs_compare_set(self, method: str) -> None:
        if type(self).compare_set is Store.compare_set:
            self._lacks(method, " (nor compare_set, which it can be made of)")

    def _lacks(self, method: str, remark: str = "") -> NoReturn:
        name = type(self).__name__
        raise NotImplementedError(f"{name} does not implement {method}{remark}")


cover(Store)
