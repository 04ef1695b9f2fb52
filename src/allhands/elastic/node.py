"""A node of a job, one launcher with its ranks, as it presents itself to the others."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from allhands.errors import DistStoreError

__all__ = ["Node", "NodeRoster", "has_types"]


class Node(NamedTuple):
    """What a launcher says of its node, and expects of the others."""

    rank: int
    num_nodes: int
    num_workers: int
    role: str
    max_restarts: int
    run_id: str
    """Empty: whatever node 0 says."""
    host: str
    """Its name, for people."""
    pid: int

    def __str__(self) -> str:
        return f"node {self.rank} (host {self.host})"

    def to_bytes(self) -> bytes:
        """As the store has it."""
        return json.dumps(self).encode()

    @staticmethod
    def read(text: bytes) -> Node:
        """What the store has of a node.

        Raises:
            DistStoreError: no launcher wrote that.
        """
        return _node(_parsed(text), text)


class NodeRoster(NamedTuple):
    """What node 0 tells all nodes once they have come."""

    nodes: tuple[Node, ...]
    run_id: str
    master_port: int
    """Free at node 0, for the programs' own use."""
    refusal: str = ""
    """Why there is no job; then the rest means nothing."""

    def to_bytes(self) -> bytes:
        """As the store has it."""
        return json.dumps(self).encode()

    @staticmethod
    def read(text: bytes) -> NodeRoster:
        """What node 0 wrote.

        Raises:
            DistStoreError: it did not write that.
        """
        parts = _parsed(text)
        if not has_types(parts, (list, str, int, str)):
            raise _stranger(text)
        nodes, run_id, master_port, refusal = parts
        return NodeRoster(
            tuple(_node(node, text) for node in nodes), run_id, master_port, refusal
        )


_NODE_TYPES = (int, int, int, str, int, str, str, int)


def _node(parts: Any, text: bytes) -> Node:
    if not has_types(parts, _NODE_TYPES):
        raise _stranger(text)
    node = Node(*parts)
    if not (0 <= node.rank < node.num_nodes and node.num_workers >= 1):
        raise _stranger(text)
    return node


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _stranger(text) from None


def has_types(parts: Any, types: tuple[type, ...]) -> bool:
    """Whether `parts`, of JSON, is a list of exactly these types."""
    if not isinstance(parts, list) or len(parts) != len(types):
        return False
    return all(type(part) is kind for part, kind in zip(parts, types, strict=True))


def _stranger(text: bytes) -> DistStoreError:
    return DistStoreError(
        f"the job's store has {text[:80]!r} where launchers present themselves, which "
        "no launcher writes; every node needs the same version of allhands, and no "
        "other program may write there"
    )
