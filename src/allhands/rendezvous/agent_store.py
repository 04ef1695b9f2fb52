"""The store that torchrun's agent hosts, as the place where ranks of ours meet.

It is one of torch's, and programs of torch.distributed use it, too: ours are keys with
a prefix of their own. It outlives the ranks, and serves each start of them after a
failure (`--max-restarts`). So rank 0 says there which process it is, and that prefixes
all other keys: a process that has ended is one of an earlier start, whatever it left.
Nothing else tells the starts apart for sure: where several agents have a job's ranks,
their counts of restarts differ.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from functools import partial

from allhands.errors import DistNetworkError, DistStoreError
from allhands.rendezvous.first_rank import wait_for_rank_0
from allhands.rendezvous.identity import Identity, is_identity, process_identity
from allhands.store import PrefixStore, Store
from allhands.store.compare_set import look

__all__ = ["meet_at_agent"]

_FIRST = "rank_0"
# The agent has listened before it started this process.
_AGENT_LIMIT = timedelta(seconds=20)


def meet_at_agent(host: str, port: int, rank: int, timeout: timedelta) -> Store:
    """What the ranks of this start share; waits until rank 0 has come.

    Raises:
        DistNetworkError: torch cannot be imported, or there is no store of its kind.
        DistStoreError: rank 0 did not come within `timeout`, or something else wrote
            where it says so.
    """
    ours = PrefixStore("allhands", _connect(host, port, min(timeout, _AGENT_LIMIT)))
    ours.set_timeout(timeout)
    if rank == 0:
        first = process_identity()
        ours.set(_FIRST, json.dumps(first))
    else:
        first = wait_for_rank_0(partial(_said, ours, rank), rank, timeout)
    return PrefixStore(json.dumps(first), ours)


def _connect(host: str, port: int, limit: timedelta) -> Store:
    try:
        from allhands.store.torch_store import TorchStore
    except ImportError as error:
        raise DistNetworkError(
            f"TORCHELASTIC_USE_AGENT_STORE is True: torchrun hosts a store of torch's "
            f"at {host}:{port}, for which torch has to be installed here ({error}). "
            f"Install it, or start the program with `allhands run`"
        ) from error
    try:
        return TorchStore.connect(host, port, limit)
    except DistNetworkError as error:
        raise DistNetworkError(
            f"TORCHELASTIC_USE_AGENT_STORE is True, but there is no store of torchrun's"
            f" at {host}:{port} (MASTER_ADDR, MASTER_PORT): {error}. Where rank 0 is to"
            f" host one, unset TORCHELASTIC_USE_AGENT_STORE"
        ) from error


def _said(ours: Store, rank: int) -> Identity | None:
    """What the store has of rank 0, for this rank."""
    said = look(ours, _FIRST)
    subject = f"init_process_group: rank {rank} (this process)"
    return None if said is None else _read(said, subject)


def _read(said: bytes, subject: str) -> Identity:
    with suppress(ValueError, RecursionError):
        parts = json.loads(said)
        if isinstance(parts, list) and is_identity(*parts):
            return Identity(*parts)
    raise DistStoreError(
        f"{subject} found {said[:80]!r} at key {_FIRST!r} of the store, which is no "
        f"process's identity: something other than allhands has written it"
    )
