"""Distinguishes the starts of a job's ranks in stores that outlive the ranks."""

from __future__ import annotations

import os

from allhands import settings
from allhands.store import Store
from allhands.store.endings import part_of_attempt

__all__ = ["part_of_this_attempt"]


def part_of_this_attempt(store: Store) -> Store:
    """Return the part of `store` for this start, without data of earlier starts.

    A launcher counts the starts. All launchers of one `allhands run` on several nodes
    have the same count. With `--nnodes`, each agent of torchrun has its own count,
    which means nothing to the others; then the result is `store` itself.
    """
    is_on_one_node = os.environ.get("GROUP_WORLD_SIZE", "1") == "1"
    if not is_on_one_node and settings.store.get() is None:
        return store
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return part_of_attempt(store, attempt)
