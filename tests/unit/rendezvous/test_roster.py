"""The exchange over the store that a world needs, where keys vanish meanwhile."""

import json
import threading
import time
from datetime import timedelta

import pytest

from allhands import DistStoreError, HashStore, RankFailedError
from allhands._C import process_identity
from allhands.rendezvous.roster import exchange
from harness.ranks import LIMIT


class Vanishing(HashStore):
    """Deletes a key of rank 0 as soon as somebody has waited for it, once."""

    def __init__(self, key):
        super().__init__()
        self.key = key
        self.has_vanished = threading.Event()
        self.set_timeout(timedelta(milliseconds=1))  # of what waits once more

    def wait(self, keys, timeout=None):
        super().wait(keys, timeout)
        if keys == [self.key] and not self.has_vanished.is_set():
            self.delete_key(self.key)
            self.has_vanished.set()


def come_as_rank_0(store):
    store.set("1/identity/0", json.dumps([2, *process_identity()]))
    store.set("1/process/0", json.dumps(process_identity()))


def test_rank_0_gives_up_before_a_slow_rank_has_read_why():
    store = Vanishing("1/outcome")
    come_as_rank_0(store)
    store.set("1/outcome", "waited for nothing")
    with pytest.raises(DistStoreError, match="heard from rank 0: it gave up"):
        exchange(store, 1, 2, timedelta(seconds=LIMIT), "call")


def test_rank_0_gives_up_and_comes_again():
    store = Vanishing("1/identity/0")

    def come_again():
        assert store.has_vanished.wait(LIMIT)
        come_as_rank_0(store)
        store.set("1/token", "00")
        store.set("1/outcome", "")

    come_as_rank_0(store)
    other = threading.Thread(target=come_again, daemon=True)
    other.start()
    roster = exchange(store, 1, 2, timedelta(seconds=LIMIT), "call")
    assert roster.identities == [process_identity()] * 2
    other.join(LIMIT)


def test_a_meeting_that_rank_0_calls_off_is_over_when_the_others_hear_it():
    class Slow(HashStore):
        def delete_key(self, key):
            if key == "1/outcome":
                time.sleep(0.2)
            return super().delete_key(key)

    def come(rank, limit):
        with pytest.raises(DistStoreError, match="timed out"):
            exchange(store, rank, 3, timedelta(seconds=limit), "call")
        left.append((rank, store.check(["1/outcome"]), store.check(["1/identity/0"])))

    store = Slow()
    left = []
    other = threading.Thread(target=come, args=(1, LIMIT), daemon=True)
    other.start()
    store.wait(["1/identity/1"])
    come(0, 0.2)
    other.join(LIMIT)
    assert sorted(left) == [(0, False, False), (1, False, False)]


def test_rank_0_does_not_wait_for_answers_of_the_dead():
    host, _, start = process_identity()
    dead = [host, 1 << 30, start]  # there is no such process
    store = HashStore()
    for rank in (1, 2):
        store.set(f"join/{rank}", "1")
        store.set(f"1/identity/{rank}", json.dumps([4, *dead]))
        store.set(f"1/process/{rank}", json.dumps(dead))
    waits = []
    store.wait = lambda keys, limit: (
        waits.append(keys) or HashStore.wait(store, keys, limit)
    )
    with pytest.raises(RankFailedError, match=r"rank 1 .* came and died"):
        exchange(store, 0, 4, timedelta(seconds=LIMIT), "call")
    assert waits[-1] == []
    assert [store.get(f"join/{rank}") for rank in range(3)] == [b"0"] * 3
    assert not any(store.check([f"1/identity/{rank}"]) for rank in range(3))


def test_rank_0_leaves_also_where_nobody_answers():
    store = HashStore()
    store.set("1/identity/1", json.dumps([3, *process_identity()]))
    store.set("1/process/1", json.dumps(process_identity()))
    with pytest.raises(DistStoreError, match=r"did not come: \[2\]"):
        exchange(store, 0, 3, timedelta(seconds=0.1), "call")
    assert not store.check(["1/outcome"])
    assert store.get("join/0") == b"0"
