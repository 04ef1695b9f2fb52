"""How node 0 ends: not before the others, and not without limit."""

import os
import signal
import threading
import time

import pytest

from allhands.elastic.log_entry import Kind, LogEntry
from allhands.elastic.node import Node, NodeRoster
from allhands.elastic.nodes import Nodes
from allhands.elastic.signals import SignalPipe
from allhands.elastic.signs import BEAT
from allhands.errors import DistNetworkError
from allhands.store import HashStore
from harness.launcher import wait_until

PAIR = [Node(rank, 2, 1, "default", 0, "", f"host{rank}", 7) for rank in range(2)]
LONG = 1000.0  # seconds that no test takes


@pytest.fixture
def store():
    made = HashStore()
    made.set(f"{BEAT}1", "0")
    return made


def node_0(store, silence, signals=None):
    return Nodes(store, NodeRoster(tuple(PAIR), "id", 5), 0, silence, signals)


def has_read(nodes, num_entries):
    wait_until(lambda: len(nodes._inbox) >= num_entries, 60, "entries of the log")


def kinds(store):
    index, found = 0, []
    while (text := store._look(f"log/{index}")) is not None:
        entry = LogEntry.read(text, 2)
        found.append((entry.kind, entry.node))
        index += 1
    return found


def test_who_has_done_its_part_but_not_left_still_needs_the_store(store):
    """As where node 0 gave up waiting for the end of the attempt, or raised."""
    for node in range(2):
        store.set(f"log/{node}", LogEntry(Kind.DONE, node, 0).to_bytes())
    with node_0(store, 0.5) as nodes:
        has_read(nodes, 2)
        begin = time.monotonic()
    assert time.monotonic() - begin > 0.4
    assert kinds(store)[2] == (Kind.LEFT, 0)


def test_it_ends_with_the_last_of_the_others(store):
    with node_0(store, LONG) as nodes:
        store.set("log/0", LogEntry(Kind.LEFT, 1).to_bytes())
        has_read(nodes, 1)
    assert kinds(store) == [(Kind.LEFT, 1), (Kind.LEFT, 0)]


def test_a_signal_ends_the_wait_for_the_others(store):
    signals, to_signals = os.pipe()
    os.set_blocking(signals, False)
    is_over = threading.Event()

    def press_on():
        wait_until(lambda: kinds(store), 60, "node 0 to say that it leaves")
        while not is_over.wait(0.05):
            os.write(to_signals, bytes([signal.SIGUSR1, signal.SIGTERM]))

    pressing = threading.Thread(target=press_on)
    with node_0(store, 200.0, SignalPipe(signals)):
        pressing.start()
        begin = time.monotonic()
    took = time.monotonic() - begin
    is_over.set()
    pressing.join()
    for fd in (signals, to_signals):
        os.close(fd)
    assert took < 100.0
    assert kinds(store) == [(Kind.LEFT, 0)]  # nobody was lost meanwhile


def test_who_has_left_is_not_called_lost(store):
    with node_0(store, 0.2) as nodes:
        store.set("log/0", LogEntry(Kind.LEFT, 1).to_bytes())
        has_read(nodes, 1)
        until = time.monotonic() + 0.4
        wait_until(lambda: time.monotonic() > until, 60, "twice the silence")
    assert kinds(store) == [(Kind.LEFT, 1), (Kind.LEFT, 0)]


@pytest.mark.parametrize("was_asked_late", [True, False])
def test_a_store_that_is_lost_at_once_was_not_silent(store, was_asked_late):
    """However long ago its last answer was, as of a process that stood still."""
    silence = 0.4

    class Lost(HashStore):
        def add(self, key, amount):
            if not was_asked_late:
                time.sleep(silence / 2)  # as long as a request waits for an answer
            raise DistNetworkError("lost")

    nodes = Nodes(Lost(), NodeRoster(tuple(PAIR), "id", 5), 1, silence)
    nodes._answered_at -= LONG
    nodes._write()
    [entry] = nodes._inbox
    assert entry.kind is Kind.LOST
    said = "closed the connection" if was_asked_late else "has not answered for 100"
    assert said in str(entry)
