"""Allowance: seconds in which something must be found out, on a machine with free CPUs.

Where many processes want a CPU, what takes 20 ms elsewhere may take a second. So the
time in which a thread waits for a CPU does not count, up to a limit. What it waits
for often needs a CPU more often than it does, so more time than that does not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from allhands.elastic.process_state import seconds_without_cpu

__all__ = ["Allowance"]

_WEIGHT = 4.0  # seconds that do not count, for each that the thread waits for a CPU
_MOST_WITHOUT_CPU = 1.2  # seconds; errors of time limits come later by these at most


class Allowance:
    """So many seconds from now on, for one thread, which is the one that spends them.

    Args:
        limit: the seconds.
    """

    def __init__(self, limit: float) -> None:
        self._end = time.monotonic() + limit
        self._spare = _MOST_WITHOUT_CPU
        self._pid: int | None = None
        self._without_cpu = seconds_without_cpu()

    def left(self) -> float:
        """Return how many are left; none if it is not more than 0."""
        before, self._without_cpu = self._without_cpu, seconds_without_cpu(self._pid)
        more = min(_WEIGHT * (self._without_cpu - before), self._spare)
        if more > 0:
            self._spare -= more
            self._end += more
        return self._end - time.monotonic()

    @contextmanager
    def spent_by(self, pid: int) -> Iterator[None]:
        """Count as it does for the main thread of process `pid`, which it waits for."""
        self._pid, self._without_cpu = pid, 0.0
        try:
            yield
        finally:
            self._pid, self._without_cpu = None, seconds_without_cpu()
