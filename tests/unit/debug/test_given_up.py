"""Records of ranks of other hosts that gave up, in a store."""

import json
import threading
from datetime import timedelta

import allhands as dist
from allhands.debug.dumps import Dump
from allhands.debug.given_up import GivenUp
from allhands.debug.record import told_now
from allhands.groups.world import current
from harness.ranks import run_ranks


def record(**changes):
    """The record of rank 0 of a world of two."""

    def body(rank):
        dist.barrier()
        return told_now(current(), "failure")

    return run_ranks(2, body)[0] | changes


def test_a_record_that_is_told_is_read():
    store, told = dist.HashStore(), record()
    ranks = GivenUp(store)
    ranks.tell(told)
    store.wait(["gave_up/0"], timedelta(seconds=60))
    found = ranks.of([0], 60)
    assert found == {0: Dump.of(json.loads(json.dumps(told)))}


def test_what_is_old_or_of_another_or_no_record_is_left_out():
    store, told = dist.HashStore(), record()
    store.set("gave_up/0", json.dumps(told | {"time_ns": told["time_ns"] - 10**10}))
    store.set("gave_up/1", json.dumps(told))
    store.set("gave_up/2", b"\xff{")
    store.set("gave_up/3", "[" * 100_000)
    store.set("gave_up/4", "{}")
    assert GivenUp(store).of(range(6), 0.1) == {}


class Silent(dist.HashStore):
    """A store whose server does not answer."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def check(self, keys):
        self.answers.wait(100)
        return super().check(keys)

    def set(self, key, value):
        self.answers.wait(100)
        raise dist.DistNetworkError("lost")


def test_nobody_waits_for_a_store_that_does_not_answer():
    answers = threading.Event()
    ranks = GivenUp(Silent(answers))
    ranks.tell(record())
    assert ranks.of([0], 0.1) == {}
    assert not answers.is_set()
    answers.set()


def test_a_reason_that_is_told_is_read_in_one_request():
    store = dist.HashStore()
    ranks = GivenUp(store)
    reader = threading.Thread(target=lambda: found.append(ranks.reason("a", 60)))
    found = []
    reader.start()
    ranks.tell_reason("a", "why: rank 3 sleeps")
    reader.join()
    assert found == ["why: rank 3 sleeps"]
    assert ranks.reason("a", 60) == found[0]
    assert ranks.reason("b", 0.05) == ""


def test_nobody_waits_for_a_reason_where_the_store_is_lost():
    answers = threading.Event()
    ranks = GivenUp(Silent(answers))
    ranks.tell_reason("a", "why: ...")
    assert ranks.reason("a", 0.1) == ""
    answers.set()
