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
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from allhands import settings
from allhands._C import process_identity
from allhands.errors import DistNetworkError, DistStoreError
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


def exchange(
    store: Store, rank: int, size: int, timeout: timedelta, operation: str
) -> Roster:
    """Publish this rank's identity and read everyone's; returns once all have come.

    Rank 0 returns last, since it often hosts the store that the others still read.
    `operation` is what errors name.

    Raises:
        DistStoreError: some ranks did not come within `timeout`; names them.
        DistNetworkError: the store was lost meanwhile.
        ValueError: the ranks do not agree about `size`.
    """
    world = store.add(f"join/{rank}", 1)
    try:
        roster = _Meeting(store, world, rank, size, timeout, operation).hold()
    except BaseException:
        with suppress(Exception):  # the store itself may be what failed
            store.set(f"{world}/gave_up/{rank}", "")
            store.delete_key(f"{world}/identity/{rank}")
            store.add(f"join/{rank}", -1)
        raise
    _forget(store, f"{world - 1}", rank)
    return roster


class _Meeting:
    """One attempt of this rank to enter a world."""

    def __init__(
        self,
        store: Store,
        world: int,
        rank: int,
        size: int,
        timeout: timedelta,
        operation: str,
    ) -> None:
        self._store, self._world = store, world
        self._rank, self._size = rank, size
        self._limit = timeout.total_seconds()
        self._deadline = time.monotonic() + self._limit
        self._subject = f"{operation}: rank {rank} (this process)"

    def hold(self) -> Roster:
        """See `exchange`."""
        store, world = self._store, self._world
        if self._rank == 0:
            store.set(f"{world}/token", os.urandom(16).hex())
        mine = [self._size, *process_identity()]
        store.set(f"{world}/identity/{self._rank}", json.dumps(mine))
        keys = [f"{world}/identity/{peer}" for peer in range(self._size)]
        self._wait(keys, self._who_is_missing)
        said = [json.loads(text) for text in store.multi_get(keys)]
        self._check_sizes([size for size, *_ in said])
        token = bytes.fromhex(store.get(f"{world}/token").decode())
        if store.add(f"{world}/read", 1) == self._size:
            store.set(f"{world}/all_read", "")
        if self._rank == 0:
            self._wait([f"{world}/all_read"], self._how_many_lag)
        return Roster([tuple(identity) for _, *identity in said], token)

    def _wait(self, keys: list[str], missing: Callable[[], str]) -> None:
        """Wait for `keys`; where the time passes first, `missing` says what for."""
        patience = settings.patience.get()
        left = max(self._deadline - time.monotonic(), 0.001)
        try:
            if not 0 < patience < left:
                self._store.wait(keys, timedelta(seconds=left))
            elif self._waited_in_vain(keys, patience, missing):
                self._store.wait(keys, timedelta(seconds=left - patience))
        except DistNetworkError as error:
            raise DistNetworkError(
                f"{self._subject} lost the store before all ranks had come: {error}"
            ) from error
        except RuntimeError as error:  # of a user's own store, too
            what = missing()
            if not what:
                raise
            raise DistStoreError(
                f"{self._subject} waited {self._limit:g} s (its timeout) for {what}"
            ) from error

    def _waited_in_vain(
        self, keys: list[str], patience: float, missing: Callable[[], str]
    ) -> bool:
        """Wait for some time; if that is not enough the first rank says what for."""
        try:
            self._store.wait(keys, timedelta(seconds=patience))
        except DistNetworkError:
            raise
        except RuntimeError:
            what = missing()
            is_first = not any(self._store.check([key]) for key in keys[: self._rank])
            if what and is_first:
                text = f"has waited {patience:g} s (limit {self._limit:g} s) for {what}"
                sys.stderr.write(f"allhands: {self._subject} {text}\n")
            return True
        return False

    def _who_is_missing(self) -> str:
        """The ranks that did not come; nothing if all did in the last moment."""
        store, world = self._store, self._world
        peers = range(self._size)
        absent = [p for p in peers if not store.check([f"{world}/identity/{p}"])]
        came = [p for p in absent if store.check([f"{world}/gave_up/{p}"])]
        if not absent:
            return ""
        missing = [p for p in absent if p not in came]
        text = f"{len(missing)} of {self._size} ranks, which did not come: {missing}"
        if came:
            text += f"; of the others, {came} gave up waiting earlier"
        again = [p for p in peers if store.add(f"join/{p}", 0) > world]
        if again:
            text += f"; several processes say that they are rank {again[0]}"
        return text

    def _how_many_lag(self) -> str:
        num_read = self._store.add(f"{self._world}/read", 0)
        return f"{self._size - num_read} of {self._size} ranks, which came and stopped"

    def _check_sizes(self, sizes: list[int]) -> None:
        for peer, size in enumerate(sizes):
            if size != self._size:
                raise ValueError(
                    f"{self._subject} has world_size {self._size}, rank {peer} has "
                    f"{size}; it must be the same on every rank"
                )


def _forget(store: Store, world: str, rank: int) -> None:
    """Delete the keys of the world before, which every rank has left by now."""
    keys = [f"{world}/identity/{rank}", f"{world}/gave_up/{rank}"]
    if rank == 0:
        keys += [f"{world}/token", f"{world}/read", f"{world}/all_read"]
    with suppress(NotImplementedError):  # a user's store need not be able to
        for key in keys if world != "0" else ():
            store.delete_key(key)
