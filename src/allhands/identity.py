"""Who the ranks of a world are: the one exchange over the store that a world needs.

Each rank publishes the process it is (host, pid, start time), rank 0 also a random
token of the job; then everyone knows which ranks share a host and can prove to be of
this job.
Groups made later need no store: their tokens are derived from the job's.

A store may serve several worlds one after the other. `join/<rank>` counts the worlds a
rank has entered, and the count, the same on every rank, prefixes all other keys. A rank
whose exchange fails takes its count back, so that the ranks can try again.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, NoReturn, TypeAlias

from allhands._C import process_identity
from allhands.errors import DistStoreError
from allhands.store import Store

__all__ = ["Identity", "Roster", "exchange"]


Identity: TypeAlias = tuple[str, int, int]
"""Host, pid and start time of a process: who it is among all hosts."""


class Roster(NamedTuple):
    """The world as every rank sees it: identities by global rank, the job's token."""

    identities: list[Identity]
    token: bytes

    def token_for(self, *parts: object) -> bytes:
        """A token that only members of this job can make, for what `parts` name."""
        import hashlib  # some milliseconds that a mere import need not take

        key = hashlib.blake2b(key=self.token, digest_size=32)
        key.update(json.dumps(parts).encode())
        return key.digest()


def exchange(store: Store, rank: int, size: int, timeout: timedelta) -> Roster:
    """Publish this rank's identity and read everyone's; returns once all have come.

    Rank 0 returns last, since it often hosts the store that the others still read.

    Raises:
        DistStoreError: some ranks did not come within `timeout`; names them.
    """
    world = store.add(f"join/{rank}", 1)
    try:
        roster = _exchange(store, f"{world}", rank, size, timeout)
    except BaseException:
        with suppress(Exception):  # the store itself may be what failed
            store.set(f"{world}/gave_up/{rank}", "")
            store.delete_key(f"{world}/identity/{rank}")
            store.add(f"join/{rank}", -1)
        raise
    _forget(store, f"{world - 1}", rank)
    return roster


def _exchange(
    store: Store, world: str, rank: int, size: int, timeout: timedelta
) -> Roster:
    deadline = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        store.set(f"{world}/token", os.urandom(16).hex())
    store.set(f"{world}/identity/{rank}", json.dumps(process_identity()))
    keys = [f"{world}/identity/{peer}" for peer in range(size)]
    try:
        _wait(store, keys, deadline)
    except RuntimeError as error:
        _name_missing(store, world, keys, rank, timeout, error)
    identities = [tuple(json.loads(text)) for text in store.multi_get(keys)]
    token = bytes.fromhex(store.get(f"{world}/token").decode())
    if store.add(f"{world}/read", 1) == size:
        store.set(f"{world}/all_read", "")
    if rank == 0:
        _wait(store, [f"{world}/all_read"], deadline)
    return Roster(identities, token)


def _wait(store: Store, keys: list[str], deadline: float) -> None:
    left = max(deadline - time.monotonic(), 0.001)
    store.wait(keys, timedelta(seconds=left))


def _name_missing(
    store: Store,
    world: str,
    keys: list[str],
    rank: int,
    timeout: timedelta,
    error: RuntimeError,
) -> NoReturn:
    """Turn the failed wait of `error` into one that says which ranks did not come."""
    absent = [peer for peer, key in enumerate(keys) if not store.check([key])]
    if not absent:
        raise error
    came = [peer for peer in absent if store.check([f"{world}/gave_up/{peer}"])]
    missing = [peer for peer in absent if peer not in came]
    text = f"{len(missing)} of {len(keys)} ranks, which did not come: {missing}"
    if came:
        text += f"; of the others, {came} gave up waiting earlier"
    raise DistStoreError(
        f"init_process_group: rank {rank} (this process) waited "
        f"{timeout.total_seconds():g} s (its timeout) for {text}"
    ) from error


def _forget(store: Store, world: str, rank: int) -> None:
    """Delete the keys of the world before, which every rank has left by now."""
    keys = [f"{world}/identity/{rank}", f"{world}/gave_up/{rank}"]
    if rank == 0:
        keys += [f"{world}/token", f"{world}/read", f"{world}/all_read"]
    with suppress(NotImplementedError):  # a user's store need not be able to
        for key in keys if world != "0" else ():
            store.delete_key(key)
