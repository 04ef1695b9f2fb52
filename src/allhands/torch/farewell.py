"""Farewell: the rank that serves the store of torch's world leaves the world last.

torch's store ends with the group of all ranks in the process that serves it. The others
may still need it, to make a group that this rank is not in.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from allhands.errors import DistNetworkError, DistStoreError
from allhands.store import Store

__all__ = ["LONGEST_FAREWELL", "Farewell"]

LONGEST_FAREWELL = 2.0
"""The most seconds that the rank waits: a program may let it end before the others."""


class Farewell:
    """What one rank says in the store of its world when it leaves. Not thread-safe.

    Args:
        store: the store in which the ranks of the world met.
        is_served_here: whether this process serves it.
        mark: distinguishes the world from others in the same store.
        rank: this rank.
        size: the number of ranks.
    """

    def __init__(
        self, store: Store, is_served_here: bool, mark: str, rank: int, size: int
    ) -> None:
        self._store = store
        self._is_served_here = is_served_here
        self._mark = mark
        self._rank = rank
        self._size = size

    def say(self, grace: float) -> None:
        """Tell that this rank has left; if it serves the store, wait for the others.

        The wait takes at most `grace` seconds, and at most `LONGEST_FAREWELL`.
        """
        limit = timedelta(seconds=min(grace, LONGEST_FAREWELL))
        with suppress(DistNetworkError, DistStoreError):  # the others may go or stay
            if not self._is_served_here:
                self._store.set(self._key(self._rank), "")
                return
            others = [each for each in range(self._size) if each != self._rank]
            self._store.wait([self._key(each) for each in others], limit)

    def _key(self, rank: int) -> str:
        return f"left/{self._mark}/{rank}"
