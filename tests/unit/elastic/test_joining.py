"""What node 0 says of the store that it serves to launchers of other hosts."""

import pytest

from allhands.elastic.joining import among
from allhands.elastic.node import Node
from allhands.errors import DistNetworkError
from harness.explained import explained
from harness.ports import reserved_port

NODE = Node(0, 2, 1, "default", 0, "", "host0", 7)


def what_node_0_says(address, capsys):
    """While it waits for node 1, which does not come."""
    with (
        reserved_port() as port,
        pytest.raises(DistNetworkError, match="for node 1 of 2"),
        among(address, port, NODE, 0.01),
    ):
        raise AssertionError("they have not met")
    return capsys.readouterr().err


def test_a_store_that_others_reach_without_a_secret_is_told_of(monkeypatch, capsys):
    monkeypatch.setenv("ALLHANDS_PATIENCE", "0")
    monkeypatch.setenv("ALLHANDS_SECRET", "")
    said = what_node_0_says("0.0.0.0", capsys)
    [line] = said.splitlines()
    assert line.startswith("allhands run: no secret: whoever can connect to 0.0.0.0, p")
    assert line.endswith("Set ALLHANDS_SECRET to the same text on all nodes")
    explained("no secret", said)
    assert what_node_0_says("127.0.0.1", capsys) == ""
    monkeypatch.setenv("ALLHANDS_SECRET", "mine")
    assert what_node_0_says("0.0.0.0", capsys) == ""
