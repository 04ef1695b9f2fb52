"""Signs of life of a job's launchers, as node 0 watches them in its own store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from allhands.elastic.log_entry import Kind, LogEntry
from allhands.elastic.node import NodeRoster
from allhands.elastic.node_ranks import ranks_of_nodes
from allhands.elastic.report import some
from allhands.store import Store

__all__ = ["BEAT", "DIED", "Watch", "lost"]

BEAT = "beat/"
"""With the node's number: a counter that its launcher raises."""
DIED = "died/"
"""With the node's number: is there once its launcher ended without a word."""


class Watch:
    """Finds out which nodes of a roster are lost; at node 0.

    One thread looks; another may say which to forget.

    Args:
        store: what the launchers share; it is served here.
        silence: after how many seconds without a sign of life a node is lost.
    """

    def __init__(self, store: Store, roster: NodeRoster, silence: float) -> None:
        self._store, self._roster, self._silence = store, roster, silence
        self._watched = set(range(1, len(roster.nodes)))
        self._lock = threading.Lock()  # for that
        self._looked_at = time.monotonic()
        self._beats: dict[int, bytes] = {}
        self._heard_at = dict.fromkeys(self._watched, self._looked_at)

    def forget(self, node: int) -> bool:
        """It left: look for it no more. Whether it was watched until now."""
        with self._lock:
            is_watched = node in self._watched
            self._watched.discard(node)
        return is_watched

    def look(self) -> Iterator[LogEntry]:
        """Those lost since the last look."""
        now = time.monotonic()
        with self._lock:
            watched = sorted(self._watched)
        if now - self._looked_at > self._silence / 4:
            # This process stood still: nothing is known of the others.
            self._heard_at = dict.fromkeys(watched, now)
        self._looked_at = now
        died = self._store._survey(DIED, len(self._roster.nodes))
        beats = self._store.multi_get([f"{BEAT}{node}" for node in watched])
        for node, beat in zip(watched, beats, strict=True):
            if self._beats.get(node) != beat:
                self._beats[node], self._heard_at[node] = beat, now
            silence = now - self._heard_at[node]
            if died[node]:
                reason = "its launcher ended without a word; was it killed?"
            elif silence > self._silence:
                reason = (
                    f"node 0 has heard nothing of it for {silence:.0f} s: is the host "
                    "down, or the network between the two?"
                )
            else:
                continue
            if self.forget(node):
                yield lost(self._roster, node, reason)


def lost(roster: NodeRoster, node: int, reason: str) -> LogEntry:
    """What tells of the loss of a node."""
    there = ranks_of_nodes(roster.nodes)[node]
    ranks = some(range(there.first_rank, there.first_rank + there.num_workers))
    lines = (
        f"allhands run: {roster.nodes[node]} is lost: {reason}",
        f"  with rank {ranks}",
    )
    return LogEntry(Kind.LOST, node, 1, lines)
