"""Presence: tells the others that a rank died before it introduced itself.

A rank that has found the store leaves a last will there (see TCPStore) until its world
is complete. The others look for it while they wait for the rank.
"""

from __future__ import annotations

import os
from contextlib import suppress

from allhands.errors import DistNetworkError, DistStoreError
from allhands.store import Store
from allhands.store.compare_set import look
from allhands.store.found import Found

__all__ = ["died", "enter", "forget", "leave", "who_died"]

_DIED = "default_pg/died/"  # the prefix of the world's other keys


def enter(store: Store, rank: int) -> None:
    """Let the others learn if this process ends before `leave`."""
    # If the store has just been lost, the rank notices when it needs the store.
    with suppress(DistNetworkError, DistStoreError):
        store._leave_last_will(_key(rank), str(os.getpid()).encode())


def leave(store: Store) -> None:
    """Withdraw the last will: from now on, this process may end."""
    store._withdraw_last_will()


def died(store: Store, rank: int) -> int | None:
    """Return the pid of `rank` if it ended before `leave`. Never waits.

    Raises:
        DistStoreError: no rank wrote the value in the store.
    """
    with suppress(NotImplementedError):  # a user's store without last wills
        pid = look(store, _key(rank))
        if pid is not None and not pid.isdigit():
            raise DistStoreError(
                f"the store has no pid of rank {rank} at {_key(rank)!r}: {pid[:80]!r}"
            )
        return None if pid is None else int(pid)
    return None


def who_died(store: Store, size: int) -> list[int]:
    """Return the ranks of `size` whose process ended before `leave`, in one request."""
    found = store._survey(_DIED, size)
    return [rank for rank, what in enumerate(found) if what == Found.SOME_VALUE]


def forget(store: Store, rank: int) -> None:
    """Remove the note that the process of `rank` ended."""
    store.delete_key(_key(rank))


def _key(rank: int) -> str:
    return f"{_DIED}{rank}"
