"""What launchers tell each other before a job begins, and what they make of it."""

import pytest

from allhands.elastic.node import Node
from allhands.elastic.node_meeting import compose, enter, join, leave
from allhands.errors import DistNetworkError
from allhands.store import HashStore

NODES = [Node(rank, 2, 2, "default", rank, "", f"host{rank}", 7) for rank in range(2)]


class GoneAfterReading(HashStore):
    """A store whose server goes as soon as a launcher has read what it says."""

    def set(self, key, value):
        if key.startswith("read/"):
            super().set(key, value)
            raise DistNetworkError("lost the store server")
        super().set(key, value)

    def delete_key(self, key):
        raise DistNetworkError("lost the store server")


def test_a_refusal_is_told_though_node_0_is_gone():
    store, said = GoneAfterReading(), []
    enter(store, NODES[1])
    enter(store, NODES[0])
    with pytest.raises(DistNetworkError, match="different --max-restarts: 0 on node 0"):
        compose(store, NODES[0], 5, 10, 0, said.append)
    with pytest.raises(DistNetworkError, match="node 0 does not start the job: the "):
        join(store, NODES[1], 10, 0, said.append)
    leave(store, 1)
    assert said == []
