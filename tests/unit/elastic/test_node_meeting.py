"""What launchers tell each other before a job begins, and what they make of it."""

import threading
from datetime import timedelta

import pytest

from allhands.elastic import node_meeting
from allhands.elastic.node import Node, NodeRoster
from allhands.elastic.node_meeting import compose, enter, join, leave, reach
from allhands.elastic.signs import BEAT, DIED
from allhands.errors import DistNetworkError, DistStoreError
from allhands.store import HashStore

ALIKE = [Node(rank, 3, 2, "default", 0, "", f"host{rank}", 7) for rank in range(3)]
PAIR = [each._replace(num_nodes=2) for each in ALIKE[:2]]
DIFFERENT = [each._replace(max_restarts=each.rank) for each in PAIR]


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch):
    """Here nobody reads a refusal before node 0 has given up."""
    monkeypatch.setattr(node_meeting, "_READING_LIMIT", timedelta(seconds=0.05))


def silent(line):
    raise AssertionError(f"nothing is to be said: {line}")


class Watched(HashStore):
    """A store that keeps last wills, and what was done with it."""

    def __init__(self):
        super().__init__()
        self.done = []
        self.num_surveys = 0

    def set(self, key, value):
        self.done.append(key)
        super().set(key, value)

    def compare_set(self, key, expected_value, desired_value):
        if expected_value != desired_value:  # else it only looks
            self.done.append(key)
        return super().compare_set(key, expected_value, desired_value)

    def _survey(self, prefix, count):
        self.num_surveys += 1
        return super()._survey(prefix, count)

    def _leave_last_will(self, key, value):
        self.delete_key(key)
        self.done.append("will")

    def _withdraw_last_will(self):
        self.done.append("no will")

    def die(self, rank):
        """What the server does when that launcher ends without a word."""
        self.set(f"{DIED}{rank}", "1")


class GoneAfterReading(Watched):
    """A store whose server goes as soon as a launcher has read what it says."""

    is_gone = False

    def set(self, key, value):
        super().set(key, value)
        if key.startswith("read/"):
            self.is_gone = True
            raise DistNetworkError("lost the store server")

    def compare_set(self, key, expected_value, desired_value):
        if self.is_gone:
            raise DistNetworkError("lost the store server")
        return super().compare_set(key, expected_value, desired_value)


def test_a_refusal_is_told_though_node_0_is_gone():
    store = GoneAfterReading()
    enter(store, DIFFERENT[1])
    enter(store, DIFFERENT[0])
    with pytest.raises(DistNetworkError, match="different --max-restarts: 0 on node 0"):
        compose(store, DIFFERENT[0], 5, 10, 0, silent)
    with pytest.raises(DistNetworkError, match="node 0 does not start the job: the "):
        join(store, DIFFERENT[1], 10, 0, silent)
    leave(store, DIFFERENT[1])
    assert store.is_gone


@pytest.mark.parametrize("nodes", [PAIR, ALIKE])
def test_a_launcher_that_came_and_died_is_waited_for_to_the_limit(nodes):
    """With three nodes, one more never came."""
    store = Watched()
    enter(store, nodes[0])
    enter(store, nodes[1])
    store.die(1)
    missing = ", ".join(str(each.rank) for each in nodes[1:])
    said = []
    told = f"node 0 has waited 0.5 s for node {missing} of {len(nodes)}, which did not"
    with pytest.raises(DistNetworkError, match=told):
        compose(store, nodes[0], 5, 0.5, 0.1, said.append)
    assert told.replace("0.5 s", "0 s (limit 0.5 s)") in said[0]
    assert 2 <= store.num_surveys < 10
    with pytest.raises(DistNetworkError, match=f"not start the job: {told}"):
        join(store, nodes[-1], 5, 0, silent)


def test_another_launcher_takes_the_place_of_one_that_died():
    store = Watched()
    enter(store, PAIR[0])
    enter(store, PAIR[1])
    store.die(1)
    other = PAIR[1]._replace(pid=8)
    enter(store, other)
    roster = compose(store, PAIR[0], 5, 10, 0, silent)
    assert roster.nodes == (PAIR[0], other)
    assert join(store, other, 10, 0, silent) == roster


def test_a_launcher_is_there_only_once_its_end_would_be_noticed():
    store = Watched()
    enter(store, PAIR[1])
    assert store.done == ["will", f"{BEAT}1", "node/1"]
    store.die(1)
    store.done.clear()
    enter(store, PAIR[1]._replace(pid=8))
    assert store.done == ["node/1", "will", f"{BEAT}1", "node/1"]


def test_a_second_launcher_of_a_node_changes_nothing():
    store = Watched()
    enter(store, PAIR[1])
    other = PAIR[1]._replace(pid=8)
    store.done.clear()
    with pytest.raises(DistNetworkError, match="that they are node 1: pid 7 on host "):
        enter(store, other)
    assert store.done == []
    leave(store, other)
    assert store.get("node/1") == PAIR[1].to_bytes()


class LeftWhileRead(Watched):
    """Where node 1 leaves just after it was seen to be there; node 2 never comes."""

    def _survey(self, prefix, count):
        found = super()._survey(prefix, count)
        leave(self, ALIKE[1])
        return found


def test_a_launcher_that_leaves_meanwhile_is_missing():
    store = LeftWhileRead()
    store.set_timeout(timedelta(seconds=5))
    enter(store, ALIKE[0])
    enter(store, ALIKE[1])
    with pytest.raises(DistNetworkError, match=r"waited 0\.1 s for node 1, 2 of 3, wh"):
        compose(store, ALIKE[0], 5, 0.1, 0, silent)


def test_a_stranger_at_the_store_is_told_of_to_all():
    store = Watched()
    enter(store, PAIR[0])
    store.set("node/1", "hello")
    with pytest.raises(DistStoreError, match="hello"):
        compose(store, PAIR[0], 5, 10, 0, silent)
    with pytest.raises(DistNetworkError, match="not start the job: the job's store "):
        join(store, PAIR[1], 10, 0, silent)


def test_node_0_sees_at_once_who_comes():
    store = Watched()
    enter(store, PAIR[0])
    coming = threading.Timer(0.05, enter, (store, PAIR[1]))
    coming.start()
    assert compose(store, PAIR[0], 5, 60, 0, silent).nodes == tuple(PAIR)
    coming.join()


class StoodStill(Watched):
    """A store whose server did not answer for a while."""

    answers = 1

    def _get_within(self, key, limit):
        self.answers += 1
        if self.answers == 2:
            raise DistNetworkError(
                "The client socket has timed out after 1000ms while trying to connect "
                "to (node-0, 29500): node-0:29500 took the connection, but did not "
                "answer"
            )
        return super()._get_within(key, limit)


def test_a_launcher_goes_on_after_a_pause_of_node_0():
    store = StoodStill()
    roster = NodeRoster(tuple(PAIR), "id", 5)
    store.set("roster", roster.to_bytes())
    assert join(store, PAIR[1], 60, 0, silent) == roster


@pytest.fixture
def dialled(monkeypatch):
    """A name whose first address swallows packets: each connection takes its 5 s."""
    now, dialled = [100.0], []
    monkeypatch.setattr(node_meeting.time, "monotonic", lambda: now[0])

    class Store(HashStore):
        def __init__(self, host, port, timeout):
            dialled.append(timeout.total_seconds())
            now[0] += min(5, dialled[-1])
            if dialled[-1] < 6:
                raise DistNetworkError(
                    f"The client socket has timed out after 1000ms while trying to "
                    f"connect to ({host}, {port}): [2001:db8::1]:{port}: no answer"
                )
            super().__init__()

    monkeypatch.setattr(node_meeting, "TCPStore", Store)
    return dialled


def test_the_second_address_of_node_0_is_reached(dialled):
    store = reach("node-0", 29500, PAIR[1], 60, 10, silent)
    assert dialled == [10]
    assert store.timeout == timedelta(seconds=30)


def test_a_second_address_is_reached_in_the_end_though_words_come_often(dialled):
    said = []
    store = reach("node-0", 29500, PAIR[1], 20, 2, said.append)
    assert dialled == [2, 2, 4, 8]
    assert len(said) == 3
    assert "waited 2 s (limit 20 s) for node 0 at node-0, port 29500 ([2001:" in said[0]
    assert store.timeout == timedelta(seconds=20)


def test_the_limit_holds_where_no_address_answers(dialled):
    with pytest.raises(DistNetworkError, match=r"node 1 has waited 5 s for node 0 at "):
        reach("node-0", 29500, PAIR[1], 5, 0, silent)
    assert dialled == [5]
