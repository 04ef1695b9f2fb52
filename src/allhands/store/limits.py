"""Time limits of store operations: their default, waits within them, their errors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

from allhands.errors import DistStoreError
from allhands.store.watch import look

__all__ = ["DEFAULT_TIMEOUT", "LOOK_S", "in_ms", "poll", "wait_timeout"]

DEFAULT_TIMEOUT = timedelta(seconds=300)
LOOK_S = 0.1
"""Seconds between looks of a wait at what else may end it."""


def in_ms(limit: timedelta) -> int:
    """Return `limit` in whole milliseconds, for messages."""
    return limit // timedelta(milliseconds=1)


def wait_timeout(keys: Sequence[str], limit: timedelta) -> DistStoreError:
    """Return the error of a wait for `keys` that reached its limit, for all stores."""
    listed = ", ".join(f"/{key}" for key in keys)
    return DistStoreError(f"wait timeout after {in_ms(limit)}ms, keys: {listed}")


def poll(limit: timedelta, longest: float = 0.01, scale: float = 1.0) -> Iterator[None]:
    """Yield at once, at growing intervals, and for the last time when `limit` passes.

    The intervals start at 0.2 ms, so a short wait ends soon, and grow to `longest`
    seconds; with 10 ms a long wait costs next to nothing. Where many wait at once, all
    intervals are `scale` times as long. A watch on the wait is called as
    often as without.
    """
    begin, seconds = time.monotonic(), limit.total_seconds()
    end = begin + seconds
    pause, longest = 0.0002 * scale, longest * scale
    next_look = begin + LOOK_S
    yield
    next_try = time.monotonic() + pause
    while (now := time.monotonic()) < end:
        # It may be late already: the thread may have been held up since.
        time.sleep(max(min(next_try, end, now + LOOK_S) - now, 0.0))
        if (now := time.monotonic()) >= next_look:
            look(now - begin, seconds)
            next_look = time.monotonic() + LOOK_S
        if now >= min(next_try, end):
            pause = min(pause * 1.5, longest)
            yield
            next_try = time.monotonic() + pause
