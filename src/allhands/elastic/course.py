"""How a job goes on all its nodes, as the log of their launchers tells it."""

from __future__ import annotations

from collections.abc import Iterable

from allhands.elastic.log_entry import ENDING, Kind, LogEntry

__all__ = ["Course"]


class Course:
    """What is known of the current attempt, and of the nodes.

    All nodes feed it the same entries in the same order, up to `is_settled` in each
    attempt; so `cause` and `is_clean` are then the same everywhere.
    """

    def __init__(self, num_nodes: int) -> None:
        self.lost: set[int] = set()
        self.left: set[int] = set()
        self.next_attempt()
        self._num_nodes = num_nodes

    def next_attempt(self) -> None:
        """Begin with the entries of another one."""
        self.cause: LogEntry | None = None
        """Why it ends early: what came first, unless that only followed."""
        self.is_signaled = False
        """Whether some launcher got a signal that ends the job, whatever the cause."""
        self.is_to_kill = False
        """Whether some launcher was told to wait for no rank any more."""
        self._codes: dict[int, int] = {}

    def note(self, entry: LogEntry) -> None:
        """Take in one entry."""
        if entry.kind in ENDING:
            is_better = self.cause is None or self.cause.is_secondary
            if is_better and (self.cause is None or not entry.is_secondary):
                self.cause = entry
        if entry.kind is Kind.LOST:
            self.lost.add(entry.node)
        elif entry.kind is Kind.LEFT:
            self.left.add(entry.node)
        elif entry.kind is Kind.DONE:
            self._codes[entry.node] = entry.number
        elif entry.kind is Kind.SIGNALED:
            self.is_signaled = True
        elif entry.kind is Kind.KILLED:
            self.is_to_kill = True

    @property
    def is_settled(self) -> bool:
        """Whether the attempt is over on every node that is left."""
        return self._have_all(self._codes)

    @property
    def is_over(self) -> bool:
        """Whether no node is left that needs the store."""
        return self._have_all(self.left)

    @property
    def is_clean(self) -> bool:
        """Whether all ranks of the attempt returned 0."""
        return len(self._codes) == self._num_nodes and not any(self._codes.values())

    def waits_for(self) -> list[int]:
        """Nodes whose part of the attempt is not over."""
        known = self.lost | self.left | self._codes.keys()
        return [node for node in range(self._num_nodes) if node not in known]

    def _have_all(self, nodes: Iterable[int]) -> bool:
        return len(self.lost.union(self.left, nodes)) == self._num_nodes
