"""What launchers write of themselves in the store, and what they refuse to read."""

import pytest

from allhands.elastic.log_entry import Kind, LogEntry
from allhands.elastic.node import Node, NodeRoster
from allhands.elastic.node_ranks import NodeRanks, ranks_of_nodes
from allhands.errors import DistStoreError

NODE = Node(1, 2, 4, "default", 0, "", "host1", 7)


def test_a_node_and_a_roster_arrive_as_they_were():
    roster = NodeRoster((NODE._replace(rank=0), NODE), "id", 5)
    assert Node.read(NODE.to_bytes()) == NODE
    assert NodeRoster.read(roster.to_bytes()) == roster
    assert str(NODE) == "node 1 (host host1)"


def test_a_record_arrives_as_it_was():
    entry = LogEntry(Kind.FAILED, 1, 7, ("a", "b"), True, 3)
    assert LogEntry.read(entry.to_bytes(), 2) == entry


STRANGE = [b"", b"\xff", b"{}", b"[]", b"3", b"[" * 100_000, b'["failed", "x"]']


@pytest.mark.parametrize("text", STRANGE)
@pytest.mark.parametrize("kind", [Node, NodeRoster])
def test_what_no_launcher_writes_is_refused(kind, text):
    with pytest.raises(DistStoreError, match="which no launcher"):
        kind.read(text)


@pytest.mark.parametrize(
    "text",
    [
        *STRANGE,
        b'["done", 1, Infinity, [], false, 0]',
        b'["done", 1, 1e3, [], false, 0]',
        b'["done", 1, -1, [], false, 0]',
        b'["done", 1, 256, [], false, 0]',
        b'["done", "1", 0, [], false, 0]',
        b'["done", 2, 0, [], false, 0]',
        b'["done", -1, 0, [], false, 0]',
        b'["done", true, 0, [], false, 0]',
        b'["done", 1, 0, "ab", false, 0]',
        b'["done", 1, 0, [7], false, 0]',
        b'["done", 1, 0, [], 0, 0]',
        b'["done", 1, 0, [], false, null]',
        b'["none", 1, 0, [], false, 0]',
        b'[["done"], 1, 0, [], false, 0]',
        b'["failed", 1, 7, [], false, 0]',
    ],
)
def test_what_no_launcher_writes_in_the_log_is_refused(text):
    with pytest.raises(DistStoreError, match="which no launcher"):
        LogEntry.read(text, 2)


@pytest.mark.parametrize(
    "node",
    [NODE._replace(rank=2), NODE._replace(rank=-1), NODE._replace(num_workers=0)],
)
def test_a_node_out_of_range_is_refused(node):
    with pytest.raises(DistStoreError, match="which no launcher"):
        Node.read(node.to_bytes())


def test_ranks_and_roles_are_counted_node_by_node():
    workers, roles = [2, 1, 3], ["a", "b", "a"]
    nodes = [
        NODE._replace(rank=rank, num_nodes=3, num_workers=number, role=role)
        for rank, (number, role) in enumerate(zip(workers, roles, strict=True))
    ]
    assert ranks_of_nodes(nodes) == [
        NodeRanks(0, 3, 2, 0, 6, 0, 5),
        NodeRanks(1, 3, 1, 2, 6, 0, 1),
        NodeRanks(2, 3, 3, 3, 6, 2, 5),
    ]
    assert ranks_of_nodes([NODE._replace(rank=0, num_nodes=1)]) == [NodeRanks.alone(4)]
