"""NodeRanks: which ranks of a job a node has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from allhands.elastic.node import Node

__all__ = ["NodeRanks", "ranks_of_nodes"]


class NodeRanks(NamedTuple):
    """The ranks of one node. Ranks are numbered node by node."""

    node: int
    num_nodes: int
    num_workers: int
    """Ranks of this node."""
    first_rank: int
    world_size: int
    first_role_rank: int
    """As `first_rank`, among the nodes of the same role."""
    role_world_size: int

    @staticmethod
    def alone(num_workers: int) -> NodeRanks:
        """Return the ranks of a job's only node."""
        return NodeRanks(0, 1, num_workers, 0, num_workers, 0, num_workers)


def ranks_of_nodes(nodes: Sequence[Node]) -> list[NodeRanks]:
    """Return the ranks of each node, in the order of the nodes."""
    world_size = sum(node.num_workers for node in nodes)
    by_role: dict[str, int] = {}
    found: list[tuple[Node, int, int]] = []
    first = 0
    for node in nodes:
        found.append((node, first, by_role.get(node.role, 0)))
        by_role[node.role] = by_role.get(node.role, 0) + node.num_workers
        first += node.num_workers
    return [
        NodeRanks(
            node=node.rank,
            num_nodes=len(nodes),
            num_workers=node.num_workers,
            first_rank=first_rank,
            world_size=world_size,
            first_role_rank=first_role_rank,
            role_world_size=by_role[node.role],
        )
        for node, first_rank, first_role_rank in found
    ]
