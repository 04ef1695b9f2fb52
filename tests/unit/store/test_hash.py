"""What HashStore does besides the contract of all stores."""

import threading

from allhands import HashStore


def test_two_stores_share_nothing():
    one, other = HashStore(), HashStore()
    one.set("k", "v")
    assert not other.check(["k"])


def test_a_change_through_a_clone_ends_a_wait():
    store = HashStore()
    threading.Timer(0.02, store.clone().set, ("k", "v")).start()
    assert store.get("k") == b"v"
