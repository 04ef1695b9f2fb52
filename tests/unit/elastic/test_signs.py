"""Node 0 finds out who shows no sign of life, and blames nobody for its own pauses."""

import pytest

from allhands.elastic import signs
from allhands.elastic.node import Node, NodeRoster
from allhands.elastic.signs import BEAT, DIED, Watch
from allhands.store import HashStore

NODES = [Node(rank, 3, 2, "default", 0, "", f"host{rank}", 7) for rank in range(3)]


@pytest.fixture
def store():
    made = HashStore()
    for node in (1, 2):
        made.set(f"{BEAT}{node}", "0")
    return made


@pytest.fixture
def clock(monkeypatch):
    """Seconds, set by the test."""
    now = [100.0]
    monkeypatch.setattr(signs.time, "monotonic", lambda: now[0])
    return now


def watch(store):
    return Watch(store, NodeRoster(tuple(NODES), "id", 5), 8.0)


def test_a_silent_node_is_lost_once(store, clock):
    watching = watch(store)
    told = []
    for _ in range(10):
        clock[0] += 1
        store.add(f"{BEAT}1", 1)
        told += watching.look()
    [entry] = told
    assert entry.node == 2
    assert entry.lines == (
        "allhands run: node 2 (host host2) is lost: node 0 has heard nothing of it for "
        "9 s: is the host down, or the network between the two?",
        "  with rank 4, 5",
    )


def test_a_node_whose_launcher_died_is_lost_at_once(store, clock):
    store.set(f"{DIED}1", "1")
    [entry] = watch(store).look()
    assert entry.node == 1
    assert "its launcher ended without a word; was it killed?" in entry.lines[0]


def test_nobody_is_blamed_while_node_0_itself_stood_still(store, clock):
    watching = watch(store)
    assert list(watching.look()) == []
    clock[0] += 60
    assert list(watching.look()) == []
    clock[0] += 1
    assert list(watching.look()) == []
