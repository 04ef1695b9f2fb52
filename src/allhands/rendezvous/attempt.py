"""Which start of a job's ranks this is, for stores that outlive the ranks."""

from __future__ import annotations

import os

from allhands import settings
from allhands.store import PrefixStore, Store

__all__ = ["part_of_this_attempt"]


def part_of_this_attempt(store: Store) -> Store:
    """What the ranks of this start share of `store`: none of what earlier ones left.

    A launcher counts the starts. Those of `allhands run` on several nodes count as one;
    of torchrun's agents with `--nnodes` each has a count of its own, which means
    nothing to the others: then it is `store` itself.
    """
    is_on_one_node = os.environ.get("GROUP_WORLD_SIZE", "1") == "1"
    if not is_on_one_node and settings.store.get() is None:
        return store
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return PrefixStore(f"attempt_{attempt}", store)
