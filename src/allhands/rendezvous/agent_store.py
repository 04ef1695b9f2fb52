"""The store of torchrun's agent, through which ranks of this package meet.

It is a store of torch, which programs of torch.distributed use, too; this package uses
keys with its own prefix. The store outlives the ranks, and serves each new start of
them after a failure (`--max-restarts`). So rank 0 writes there which process it is, and
this identity prefixes all other keys. If that process has ended, it belongs to an
earlier start, and nothing that it left counts. Nothing else distinguishes the starts
reliably: if several agents have the ranks of a job, their counts of restarts differ.
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
# The agent listened before it started this process.
_AGENT_LIMIT = timedelta(seconds=20)


def meet_at_agent(host: str, port: int, rank: int, timeout: timedelta) -> Store:
    """Return the store that the ranks of this start share; wait for rank 0.

    Raises:
        DistNetworkError: torch cannot be imported, or there is no store of torch at
            this place.
        DistStoreError: rank 0 did not come within `timeout`, or another program wrote
            to rank 0's key.
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
    """Return what the store holds about rank 0, for this rank."""
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
