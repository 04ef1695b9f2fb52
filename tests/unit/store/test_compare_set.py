"""What a store makes of compare_set, where two do it at once and where one dies."""

import datetime
import threading
import time

import pytest

from allhands import DistStoreError
from allhands.store import compare_set
from harness.pace import patient
from harness.ranks import LIMIT
from harness.stores import LeastStore

SECOND = datetime.timedelta(seconds=1)


def test_equal_changes_at_the_same_time_all_count():
    """The second caller sees the value that it wanted, which is not its own."""
    store = LeastStore()
    store.set("n", "5")
    begun, added = threading.Event(), []
    swap = store.compare_set

    def swap_after_the_other(key, expected, desired):
        if (expected, desired) == (b"5", b"6") and not begun.is_set():
            begun.set()
            other.start()
            other.join(0.05)  # it may not finish before this call does
            assert not added
        return swap(key, expected, desired)

    store.compare_set = swap_after_the_other
    other = threading.Thread(target=lambda: added.append(store.add("n", 1)))
    assert store.add("n", 1) == 6
    other.join(LIMIT)
    assert added == [7]


def test_a_value_that_is_set_meanwhile_is_not_lost():
    store = LeastStore()
    swap = store.compare_set

    def swap_after_a_set(key, expected, desired):
        if key == "k" and desired == b"ab":
            store.compare_set = swap
            store.set("k", "c")
        return swap(key, expected, desired)

    store.set("k", "a")
    store.compare_set = swap_after_a_set
    store.append("k", "b")
    assert store.get("k") == b"cb"


def test_the_lock_of_who_died_is_taken_over(monkeypatch):
    store = LeastStore()
    store.set("n/lock", "of one that was killed")
    monkeypatch.setattr(compare_set, "_ABANDONED_AFTER", 0.05)
    start = time.monotonic()
    assert store.add("n", 1) == 1
    assert 0.05 <= time.monotonic() - start < patient(2, start)
    assert store.get("n/lock") == b""


def test_a_lock_that_is_held_is_named():
    store = LeastStore()
    store.set("n/lock", "of one that goes on")
    store.set_timeout(SECOND / 50)
    message = r"held the lock of key 'n' for 0\.02 s .*; it is the key 'n/lock'"
    with pytest.raises(DistStoreError, match=message):
        store.add("n", 1)


def test_to_look_whether_a_key_exists_makes_none():
    store = LeastStore()
    assert not store.check(["k"])
    store.set("k", "")
    assert store.check(["k"])
    assert store.get("k") == b""
