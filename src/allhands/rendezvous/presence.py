"""Presence: what tells the others that a rank died before it said who it is.

A rank that has found the store by its rank leaves a last will there (see TCPStore),
until its world is complete. The others look for it while they wait for the rank.
"""

from __future__ import annotations

import os
from contextlib import suppress

from allhands.errors import DistNetworkError, DistStoreError
from allhands.store import Store
from allhands.store.compare_set import look

__all__ = ["died", "enter", "forget", "leave"]


def enter(store: Store, rank: int) -> None:
    """Have the others learn it if this process ends before `leave`."""
    # Where the store has just been lost, the rank learns it when it needs the store.
    with suppress(DistNetworkError, DistStoreError):
        store._leave_last_will(_key(rank), str(os.getpid()).encode())


def leave(store: Store) -> None:
    """From now on, this process may end."""
    store._withdraw_last_will()


def died(store: Store, rank: int) -> int | None:
    """The pid of the process of `rank` if it ended before `leave`. Never waits."""
    with suppress(NotImplementedError):  # a user's store, which keeps no last wills
        pid = look(store, _key(rank))
        return None if pid is None else int(pid)
    return None


def forget(store: Store, rank: int) -> None:
    """Have nobody learn any more that the process of `rank` ended."""
    store.delete_key(_key(rank))


def _key(rank: int) -> str:
    return f"default_pg/died/{rank}"  # where the world's other keys are, too
