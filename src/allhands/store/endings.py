"""Endings: which ranks of a job have ended well, as their launcher notes in the store.

Ranks that wait for all to meet look there. A rank that ended well before it came leaves
no other trace, and nothing says otherwise that it will not come.
"""

from __future__ import annotations

from allhands.store.base import Store
from allhands.store.found import Found
from allhands.store.prefix import PrefixStore

__all__ = ["Endings", "part_of_attempt"]


def part_of_attempt(store: Store, attempt: str) -> PrefixStore:
    """Return the part of a launcher's store for one start of the ranks, from "0"."""
    return PrefixStore(f"attempt_{attempt}", store)


class Endings:
    """The notes on a job's ranks, by their numbers in the job.

    A program may make worlds of fewer ranks, with other numbers. So the names of the
    notes have the number of the job's ranks, and such worlds do not find them.

    Args:
        store: the part of a store for this start of the ranks.
        size: the number of ranks, of the job or of a world.
    """

    def __init__(self, store: Store, size: int) -> None:
        self._notes = PrefixStore(f"ended/{size}", store)
        self._size = size

    def note(self, rank: int, pid: int) -> None:
        """Note that the process of `rank` ended with exit code 0."""
        self._notes.set(str(rank), str(pid))

    def pid_of(self, rank: int) -> int | None:
        """Return the pid that `rank` had; None if it has not ended so."""
        pid = self._notes._look(str(rank))
        return int(pid) if pid is not None and pid.isdigit() else None

    def ranks(self) -> list[int]:
        """Return which ranks have ended so, in one request."""
        found = self._notes._survey("", self._size)
        return [rank for rank, what in enumerate(found) if what == Found.SOME_VALUE]
