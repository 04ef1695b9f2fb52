"""The exchange over the store that a world needs, where keys vanish meanwhile."""

import json
import threading
from datetime import timedelta

import pytest

from allhands import DistStoreError, HashStore
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
