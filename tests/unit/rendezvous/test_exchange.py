"""The exchange over the store that a world needs; ranks are threads."""

import json
import os
import socket
import threading
import time
from collections import Counter
from datetime import timedelta

import pytest

from allhands import DistStoreError, HashStore, RankFailedError
from allhands.rendezvous import exchange as exchange_module
from allhands.rendezvous import host_copy, meeting, rank_0
from allhands.rendezvous.exchange import exchange
from allhands.rendezvous.identity import Identity, Introduction, process_identity
from allhands.rendezvous.outcome import Outcome
from allhands.rendezvous.port import open_port
from harness.pace import patient
from harness.ranks import LIMIT
from harness.stores import DictStore, LeastStore

DEAD = process_identity()._replace(pid=1 << 30)  # no such process


@pytest.fixture(autouse=True)
def all_ranks_are_here(monkeypatch):
    """So that nothing listens, whatever the store is."""
    monkeypatch.setenv("WORLD_SIZE", "300")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "300")


class Vanishing(HashStore):
    """Deletes a key of rank 0 as soon as somebody has waited for it, once."""

    def __init__(self, key):
        super().__init__()
        self.key = key
        self.has_vanished = threading.Event()

    def wait(self, keys, timeout=None):
        super().wait(keys, timeout)
        if keys == [self.key] and not self.has_vanished.is_set():
            self.delete_key(self.key)
            self.has_vanished.set()


def come(store, rank, size, identity=None):
    said = Introduction(size, identity or process_identity())
    store.set(f"1/identity/{rank}", said.to_bytes())


def meet(store, rank, size, limit=LIMIT):
    return exchange(store, rank, size, timedelta(seconds=limit), "call")


def meet_all(stores, limit=LIMIT):
    """What each rank gets or raises; each has a store of its own on the same data."""
    outcomes = [None] * len(stores)

    def body(rank):
        try:
            outcomes[rank] = meet(stores[rank], rank, len(stores), limit)
        except Exception as error:
            outcomes[rank] = error

    threads = [
        threading.Thread(target=body, args=(rank,), daemon=True)
        for rank in range(len(stores))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    return outcomes


class Counting(HashStore):
    """Counts the requests of one rank, and the keys that they name."""

    def __init__(self, data):
        super().__init__()
        self._table = data._table
        self.num_requests = Counter()
        self.num_keys_named = 0

    def count(self, kind, keys=1):
        self.num_requests[kind] += 1
        self.num_keys_named += keys

    def add(self, *args):
        self.count("add")
        return super().add(*args)

    def set(self, *args):
        self.count("set")
        super().set(*args)

    def multi_get(self, keys):
        self.count("multi_get", len(keys))
        return super().multi_get(keys)

    def _get_within(self, *args):
        self.count("get")
        return super()._get_within(*args)

    def _survey(self, *args):
        self.count("survey")
        return super()._survey(*args)


def listen_at(interfaces, monkeypatch):
    """Let ranks believe that others may be on other hosts."""
    monkeypatch.setenv("ALLHANDS_INTERFACES", interfaces)
    monkeypatch.setenv("ALLHANDS_HOST_ID", "here")


@pytest.mark.parametrize("interfaces", ["", "lo"])
@pytest.mark.parametrize("size", [2, 96])
def test_what_it_costs_a_rank_does_not_grow_with_the_world(
    size, interfaces, monkeypatch
):
    if interfaces:
        listen_at(interfaces, monkeypatch)
    monkeypatch.setattr(meeting, "SLICE_S", LIMIT)  # nobody looks around
    monkeypatch.setattr(rank_0, "SLICE_S", LIMIT)
    data = HashStore()
    stores = [Counting(data) for _ in range(size)]
    rosters = meet_all(stores)
    assert all(roster == rosters[0] for roster in rosters)
    assert [each.pid for each in rosters[0].identities] == [os.getpid()] * size
    assert all(bool(interfaces) == bool(i.endpoints) for i in rosters[0].identities)
    for store in stores[1:]:
        # join, identity; rank 0's identity, the outcome; read
        assert store.num_requests == {"add": 1, "set": 2, "get": 2}
        assert store.num_keys_named == 5
    assert stores[0].num_requests["multi_get"] == 1


@pytest.mark.parametrize("kind", [HashStore, DictStore, LeastStore])
def test_a_long_roster_is_told_apart_from_the_outcome(kind, monkeypatch):
    monkeypatch.setattr(rank_0, "_SHORT_ROSTER", 10)
    store = kind()
    rosters = meet_all([store] * 4)
    assert all(roster == rosters[0] for roster in rosters)
    assert rosters[0].identities == [process_identity()] * 4
    outcome = Outcome.read(store.get("1/outcome"))
    assert not outcome.roster
    assert len(store.get("1/outcome")) < 200


def test_a_long_roster_goes_to_each_host_once(monkeypatch):
    """Six ranks, two on each of three hosts, as they believe."""
    monkeypatch.setattr(rank_0, "_SHORT_ROSTER", 10)
    _, pid, start, _ = process_identity()
    me = threading.local()

    def here(endpoints=""):
        return Identity(f"host {me.rank // 2}", pid, start)

    for module in (meeting, host_copy):
        monkeypatch.setattr(module, "process_identity", here)

    class Place(HashStore):
        def add(self, key, amount):
            if key.startswith("join/") and amount:  # what a rank does first
                me.rank = int(key.removeprefix("join/"))
            return super().add(key, amount)

        def get(self, key):
            num_fetched[key == "1/roster", me.rank // 2] += 1
            return super().get(key)

    num_fetched = Counter()
    store = Place()
    first, *others = meet_all([store] * 6)
    assert first.identities == [(f"host {r // 2}", pid, start, "") for r in range(6)]
    assert [first] * 5 == others
    assert num_fetched[True, 0] == 0
    assert num_fetched[True, 1] == num_fetched[True, 2] == 1
    assert not [key for key in store.list_keys() if key.startswith("1/host/")]


class Believing(HashStore):
    """Of ranks that believe to be on a host each; knows which rank has come where."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.me = threading.local()
        for module in (meeting, host_copy):
            monkeypatch.setattr(module, "process_identity", self.identity)

    def identity(self, endpoints=""):
        return process_identity(endpoints)._replace(host=f"host {self.me.rank}")

    def add(self, key, amount):
        if key.startswith("join/") and amount:  # what a rank does first
            self.me.rank = int(key.removeprefix("join/"))
        return super().add(key, amount)


def is_open(endpoints):
    host, _, port = endpoints.rpartition(":")
    try:
        socket.create_connection((host, int(port)), LIMIT).close()
    except ConnectionRefusedError:
        return False
    return True


def test_ranks_on_several_hosts_listen_for_each_other(monkeypatch):
    listen_at("lo", monkeypatch)
    rosters = meet_all([Believing(monkeypatch)] * 3)
    places = [each.endpoints for each in rosters[0].identities]
    assert all(roster.identities == rosters[0].identities for roster in rosters)
    assert len(set(places)) == 3
    for roster, place in zip(rosters, places, strict=True):
        assert roster.port.endpoints == place
        assert is_open(place)
        assert roster.port_for([0, 2]) is roster.port_for([1, 0]) is roster.port.native
        assert roster.port_for([1]) is None
        with pytest.raises(ValueError, match="was started before"):
            roster.port.native.start(bytes(32))
    del roster, rosters
    assert not any(map(is_open, places))


def test_ranks_that_are_on_one_host_listen_no_longer(monkeypatch):
    listen_at("lo", monkeypatch)
    for roster in meet_all([HashStore()] * 3):
        assert all(each.endpoints for each in roster.identities)
        assert not any(is_open(each.endpoints) for each in roster.identities)
        assert roster.port_for(range(3)) is None


def test_who_gives_up_listens_no_longer(monkeypatch):
    listen_at("lo", monkeypatch)
    opened = []
    monkeypatch.setattr(
        exchange_module,
        "open_port",
        lambda *args: opened.append(open_port(*args)) or opened[0],
    )
    with pytest.raises(DistStoreError, match="did not come"):
        meet(HashStore(), 0, 2, 0.05)
    assert not is_open(opened[0].endpoints)


@pytest.mark.parametrize("kind", [HashStore, DictStore, LeastStore])
def test_ranks_that_gave_up_meet_again(kind):
    store = kind()
    for _ in range(2):
        for rank in (0, 1):
            with pytest.raises(DistStoreError, match="did not come"):
                meet(store, rank, 3, 0.05)
    first, *others = meet_all([store] * 3)
    assert [first] * 2 == others
    assert store.get("join/0") == store.get("join/2")


def test_rank_0_gives_up_before_a_slow_rank_has_read_why():
    store = Vanishing("1/outcome")
    come(store, 0, 2)
    store.set("1/outcome", Outcome(problem="waited for nothing").to_bytes())
    with pytest.raises(DistStoreError, match="heard from rank 0: it gave up"):
        meet(store, 1, 2)


@pytest.mark.parametrize("left", [b"", None])
def test_rank_0_gives_up_and_comes_again(left):
    store = Vanishing("1/identity/0")

    def come_again():
        assert store.has_vanished.wait(LIMIT)
        if left is not None:
            store.set("1/identity/0", left)
        come(store, 0, 2)
        meet(store, 0, 2)

    come(store, 0, 2)
    other = threading.Thread(target=come_again, daemon=True)
    other.start()
    assert meet(store, 1, 2).identities == [process_identity()] * 2
    other.join(LIMIT)


def test_a_meeting_that_rank_0_calls_off_is_over_when_the_others_hear_it():
    class Slow(HashStore):
        def delete_key(self, key):
            if key == "1/outcome":
                time.sleep(0.2)
            return super().delete_key(key)

    def try_to_meet(rank, limit):
        with pytest.raises(DistStoreError, match="timed out"):
            meet(store, rank, 3, limit)
        left.append((rank, store.check(["1/outcome"]), store.get("1/identity/0")))

    store = Slow()
    left = []
    other = threading.Thread(target=try_to_meet, args=(1, LIMIT), daemon=True)
    other.start()
    store.wait(["1/identity/1"])
    try_to_meet(0, 0.2)
    other.join(LIMIT)
    assert sorted(left) == [(0, False, b""), (1, False, b"")]


def test_rank_0_does_not_wait_for_answers_of_the_dead():
    store = HashStore()
    for rank in (1, 2):
        store.set(f"join/{rank}", "1")
        come(store, rank, 4, DEAD)
    start = time.monotonic()
    with pytest.raises(RankFailedError, match=r"rank 1 .* came and died"):
        meet(store, 0, 4)
    assert time.monotonic() - start < patient(1.5, start)  # else 2 s more
    assert [store.get(f"join/{rank}") for rank in range(3)] == [b"0"] * 3
    assert not any(store.check([f"1/identity/{rank}"]) for rank in (1, 2))


def test_rank_0_leaves_also_where_nobody_answers():
    store = HashStore()
    come(store, 1, 3)
    with pytest.raises(DistStoreError, match=r"did not come: \[2\]"):
        meet(store, 0, 3, 0.1)
    assert not store.check(["1/outcome"])
    assert store.get("join/0") == b"0"


def test_a_process_in_the_place_of_one_that_gave_up_is_alive():
    """Rank 1 came as another process, gave up, and came again before rank 0 looked."""

    class Place(HashStore):
        def wait(self, keys, timeout=None):
            come(self, 1, 3)
            super().wait(keys, timeout)

    store = Place()
    come(store, 1, 3, DEAD)
    with pytest.raises(DistStoreError, match=r"1 of 3 ranks, .* come: \[2\]$"):
        meet(store, 0, 3, 1)


def test_many_ranks_are_named_by_ranges():
    store = HashStore()
    for rank in {*range(300)} - {7, 8, 150}:
        come(store, rank, 300)
    for rank in [*range(100, 120), 200]:
        store.set(f"1/identity/{rank}", b"")
    with pytest.raises(DistStoreError) as caught:
        meet(store, 0, 300, 0.05)
    text = str(caught.value)
    assert "3 of 300 ranks, which did not come: [7, 8, 150]; " in text
    assert "of the others, [100-119, 200] gave up waiting earlier" in text
    assert "\n" not in text
    assert len(text) < 250


NO_IDENTITIES = [
    b"\xff",
    b"{}",
    b"[]",
    b"[2]",
    b'[2, "host", 1, 1]',
    b'[2, "host", 1, "1", ""]',
    b'[2, "host", 0, 1, ""]',
    b'["2", "host", 1, 1, ""]',
    b'[0, "host", 1, 1, ""]',
    b'[true, "host", 1, 1, ""]',
    b'[2, 7, 1, 1, ""]',
    b'[2, "host", 1, 1e99, ""]',
    b'[2, "host", 99999999999, 1, ""]',
    b'[2, "host", 1, 1, "", 1]',
    b'[2, "host", 1, 1, 7]',
    b'[2, "host", 1, 1, "10.0.0.3"]',
    b'[2, "\\ud800", 1, 1, ""]',
    b'[2, "a\\nb", 1, 1, ""]',
    b'[2, "%s", 1, 1, ""]' % (b"h" * 1000),
    b"[" * 100_000,
]


@pytest.mark.parametrize("text", NO_IDENTITIES)
@pytest.mark.parametrize("rank", [0, 1])
def test_bytes_that_no_rank_wrote_are_no_identity(rank, text, monkeypatch):
    monkeypatch.setattr(rank_0, "ANSWER", 0.01)  # nobody is there to hear of it
    store = HashStore()
    store.set(f"1/identity/{1 - rank}", text)
    message = rf"the store says of rank {1 - rank} what no rank writes: .*version of"
    with pytest.raises(DistStoreError, match=message):
        meet(store, rank, 2)


def test_the_others_hear_of_bytes_that_no_rank_wrote():
    store = HashStore()
    store.set("1/identity/2", b"?")
    heard = []

    def listen():
        with pytest.raises(DistStoreError) as caught:
            meet(store, 1, 3)
        heard.append(str(caught.value))

    other = threading.Thread(target=listen, daemon=True)
    other.start()
    store.wait(["1/identity/1"])
    with pytest.raises(DistStoreError, match="of rank 2 what no rank writes"):
        meet(store, 0, 3)
    other.join(LIMIT)
    assert "heard from rank 0: it raised" in heard[0]
    assert [store.get(f"join/{rank}") for rank in range(2)] == [b"0", b"0"]


def test_who_told_may_give_up_where_nothing_can_be_deleted(monkeypatch, capfd):
    monkeypatch.setenv("ALLHANDS_PATIENCE", "0.05")
    store = LeastStore()
    for _ in range(2):  # the second has to tell anew
        with pytest.raises(DistStoreError, match=r"did not come: \[1\]"):
            meet(store, 0, 2, 0.8)
    assert capfd.readouterr().err.count("has waited") == 2


def no_roster(*columns):
    return json.dumps(["", "00" * 16, json.dumps(columns), "", -1]).encode()


NO_OUTCOMES = [
    b"[]",
    b"\xff",
    b'["", "", "", "", -1]',
    b'["", "zz", "[]", "", -1]',
    b'["", "00", "", "", -1]',
    b'["", "00", "[]", "", "1"]',
    b'["", "00", "[]"]',
    no_roster([], [], [], [], []),
    no_roster(["a"], [0, 0], [1, 1], [1, 1]),
    no_roster(["a"], [0, 1], [1, 1], [1, 1], ["", ""]),
    no_roster(["a"], [0, -1], [1, 1], [1, 1], ["", ""]),
    no_roster(["a"], [0, 0], [1, 1], [1, None], ["", ""]),
    no_roster(["a"], [0, 0], [1, 1], [1, 1], ["", "10.0.0.3:0"]),
    no_roster(["a"], [0, 0], [1, 1], [1, 1], [""]),
    no_roster(["a"], [0, 0], [1, 1], [1, 1], ["", ""], []),
    json.dumps(["", "00", "", "digest of nothing", 0]).encode(),
]


@pytest.mark.parametrize("text", NO_OUTCOMES)
def test_bytes_that_rank_0_did_not_write_are_no_outcome(text):
    store = HashStore()
    come(store, 0, 2)
    store.set("1/roster", b"[[],[],[],[]]")
    store.set("1/outcome", text)
    with pytest.raises(DistStoreError, match="the store"):
        meet(store, 1, 2)
