"""What the store tells of a rank that found it and ended."""

import datetime
import subprocess
import sys

import pytest

from allhands import DistStoreError, HashStore, TCPStore, settings
from allhands._C import StoreRelay
from allhands.rendezvous import presence
from harness.ranks import LIMIT

WAYS = {
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "exits": "sys.exit(1)",
    "drops the store": "del store, _; os.kill(os.getpid(), signal.SIGKILL)",
    "gives up": """
try:
    dist.init_process_group(
        store=store, rank=1, world_size=2, timeout=timedelta(milliseconds=50))
except dist.DistStoreError as error:
    held = error  # and with it the store
os.kill(os.getpid(), signal.SIGKILL)
""",
    "forks": """
child = os.fork()
if child == 0:
    del store, _
    os._exit(0)
os.waitpid(child, 0)
os.kill(os.getpid(), signal.SIGKILL)
""",
}


@pytest.fixture(params=["served", "relayed"])
def store(request):
    served = TCPStore("127.0.0.1", 0, is_master=True)
    served.set_timeout(datetime.timedelta(seconds=LIMIT))
    if request.param == "served":
        yield served
        return
    relay = StoreRelay("127.0.0.1", served.port, settings.secret.get(), LIMIT)
    store = TCPStore("127.0.0.1", relay.port)
    store.set_timeout(datetime.timedelta(seconds=LIMIT))
    yield store


def run(store, end):
    """A rank that finds the store and ends so; its pid."""
    source = f"""
import os, signal, sys
from datetime import timedelta
import allhands as dist
store, *_ = next(dist.rendezvous("tcp://127.0.0.1:{store.port}?rank=1&world_size=2"))
{end}
"""
    rank = subprocess.Popen([sys.executable, "-c", source])
    rank.wait(LIMIT)
    return rank.pid


@pytest.mark.parametrize("way", ["is killed", "exits", "forks"])
def test_a_rank_that_ended_with_the_store_has_died(store, way):
    assert presence.died(store, 1) is None
    pid = run(store, WAYS[way])
    store.wait(["default_pg/died/1"])
    assert presence.died(store, 1) == pid
    assert presence.died(store, 0) is None


@pytest.mark.parametrize("way", ["drops the store", "gives up"])
def test_a_rank_that_left_the_store_before_it_ended_has_not(store, way):
    run(store, WAYS[way])
    assert presence.died(store, 1) is None
    assert not store.check(["default_pg/died/1"])


def test_a_rank_that_comes_again_is_there(store):
    store.set("default_pg/died/1", b"17")
    presence.enter(store, 1)
    assert presence.died(store, 1) is None
    presence.leave(store)
    assert presence.died(store, 1) is None


def test_a_clone_leaves_the_presence_alone(store):
    presence.enter(store, 1)
    clone = store.clone()
    presence.leave(clone)
    del clone
    assert store._last_will is not None


def test_what_is_forgotten_meanwhile_is_not_waited_for():
    class Forgetful(HashStore):
        def check(self, keys):
            found = super().check(keys)
            presence.forget(self, 1)
            return found

    store = Forgetful()
    store.set_timeout(datetime.timedelta(milliseconds=1))
    store.set("default_pg/died/1", b"17")
    assert presence.died(store, 1) == 17
    presence.forget(store, 1)
    assert presence.died(store, 1) is None
    assert store.num_keys() == 0


def test_all_that_died_are_told_by_one_request(store):
    store.set("default_pg/died/1", b"17")
    store.set("default_pg/died/12", b"18")
    assert presence.who_died(store, 12) == [1]
    assert presence.who_died(store, 13) == [1, 12]


def test_what_is_no_pid_is_not_taken_for_one(store):
    store.set("default_pg/died/1", b"x")
    with pytest.raises(DistStoreError, match=r"no pid of rank 1 .*: b'x'"):
        presence.died(store, 1)
