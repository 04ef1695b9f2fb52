"""Which start of a job's ranks this is, for stores that outlive the ranks."""

from __future__ import annotations

import os

from allhands.store import PrefixStore, Store

__all__ = ["part_of_this_attempt"]


def part_of_this_attempt(store: Store) -> Store:
    """What the ranks of this start share of `store`: none of what earlier ones left.

    A launcher counts the starts. Where several agents have a job's ranks, as torchrun's
    `--nnodes`, their counts differ and mean nothing: then it is `store` itself.
    """
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        return store
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return PrefixStore(f"attempt_{attempt}", store)
