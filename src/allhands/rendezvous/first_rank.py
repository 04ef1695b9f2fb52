"""How a rank waits for rank 0 at a place that outlives jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from allhands import settings
from allhands.errors import DistStoreError
from allhands.rendezvous.identity import Identity, is_alive
from allhands.rendezvous.log import LogLevel, say
from allhands.store.limits import poll

__all__ = ["wait_for_rank_0"]


def wait_for_rank_0(
    look: Callable[[], Identity | None],
    rank: int,
    timeout: timedelta,
    longest_pause: float = 0.01,
) -> Identity:
    """Return the process of rank 0 as soon as `look` finds one that has not ended.

    Between two looks the rank pauses for up to `longest_pause` seconds.

    Raises:
        DistStoreError: `look` did not find one within `timeout`.
    """
    begin, patience = time.monotonic(), settings.patience.get()
    limit = round(timeout.total_seconds(), 2)
    is_told = not 0 < patience < limit
    subject = f"init_process_group: rank {rank} (this process)"
    last = None
    for _ in poll(timeout, longest_pause):
        last = look()
        if last is not None and is_alive(last):
            return last
        if not is_told and time.monotonic() - begin >= patience:
            is_told = True
            say(
                LogLevel.WARNING,
                "waiting",
                rank,
                f"{subject} has waited {patience:g} s (limit {limit:g} s) for rank 0, "
                f"which did not come",
            )
    earlier = ""
    if last is not None:
        earlier = f" (pid {last.pid}, which was rank 0, has ended)"
    raise DistStoreError(
        f"{subject} timed out: waited {limit:g} s (its timeout) for rank 0, which did "
        f"not come{earlier}"
    )
