"""Opens the store that the ranks of a job share, at a port that they know.

A launcher or rank 0 hosts it. A rank that does not find the store at once keeps looking
for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from allhands import settings
from allhands.errors import DistNetworkError
from allhands.options import to_seconds
from allhands.rendezvous.attempt import part_of_this_attempt
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.presence import enter
from allhands.store import Store, TCPStore
from allhands.store.relayed import RelayedStore

__all__ = ["open_store"]


def open_store(
    host: str,
    port: int,
    rank: int,
    world_size: int,
    timeout: timedelta,
    is_hosted: bool = False,
    relay: settings.Relay | None = None,
) -> Store:
    """Return the store at host and port, which a launcher or rank 0 here hosts.

    A launcher's store may be reached through a `relay`. The call does not wait for
    other ranks, so that a caller can report who is missing. Nobody counts who joined a
    launcher's store.
    """
    counted = None if is_hosted else world_size
    make: Callable[..., TCPStore] = partial(
        TCPStore,
        host,
        port,
        counted,
        is_master=rank == 0 and not is_hosted,
        wait_for_workers=False,
        multi_tenant=True,
    )
    if relay is not None:
        make = partial(RelayedStore, host, port, counted, relay=relay)
    store: Store = _made_patiently(make, rank, timeout)
    if is_hosted:
        store = part_of_this_attempt(store)
    enter(store, rank)
    return store


def _made_patiently(
    make: Callable[..., TCPStore], rank: int, timeout: timedelta
) -> TCPStore:
    """Make the store; after a long wait, report it and keep looking."""
    patience = timedelta(seconds=settings.patience.get())
    start = time.monotonic()
    if not 0 < patience.total_seconds() < to_seconds(timeout):
        return make(timeout=timeout)
    try:
        store = make(timeout=patience)
    except DistNetworkError as error:
        took = timedelta(seconds=time.monotonic() - start)
        if took < patience:
            raise  # a later attempt would get the same error
        left = max(timeout - took, timedelta(milliseconds=1))
        text = (
            f"rank {rank} (this process) goes on looking for the store, for "
            f"{left.total_seconds():.0f} s: {error}"
        )
        say(LogLevel.WARNING, "waiting", rank, text)
        store = make(timeout=left)
    store.set_timeout(timeout)
    return store
