"""Deaths: the dead ranks of a world, as far as waits in stores have told of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

__all__ = ["Deaths"]

_PAUSE_S = 0.3  # between two questions who is dead
_GRACE_S = 0.1  # for what a rank wrote just before it died


class Deaths(threading.local):
    """The deaths in one world, each of which is told once in each thread."""

    def __init__(self) -> None:
        self._next_look = 0.0
        self._seen: dict[int, float] = {}
        self._told: set[int] = set()

    def is_due(self) -> bool:
        """Return whether it is time to ask who is dead."""
        return time.monotonic() >= self._next_look

    def news(self, dead_ranks: Callable[[], Sequence[int]]) -> list[int]:
        """Return the dead ranks to be told of now, in order.

        This thread is never told of them again.

        Args:
            dead_ranks: returns all dead ranks.
        """
        now = time.monotonic()
        fresh = set(dead_ranks()) - self._told
        for rank in fresh:
            self._seen.setdefault(rank, now)
        news = [rank for rank in sorted(fresh) if now - self._seen[rank] >= _GRACE_S]
        self._told.update(news)
        is_sure = len(news) == len(fresh)
        self._next_look = now + (_PAUSE_S if is_sure else _GRACE_S)
        return news
