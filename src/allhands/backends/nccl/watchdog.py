"""NcclWatchdog: a thread that asks a group's operations whether they have ended.

Nobody else may do so: a program that waits lets only the streams of its GPU wait. The
thread finds operations whose time is over and ranks that died.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from allhands.backends.nccl.capture import allow_captures
from allhands.backends.polled_work import Subject

__all__ = ["LongCall", "NcclWatchdog"]

_PAUSE = 0.1
"""Seconds between two times that it asks."""


class LongCall:
    """A call of NCCL that is no operation of the group."""

    def __init__(self, subject: Subject, limit: float) -> None:
        self.subject, self.limit = subject, limit
        self.start = time.monotonic()


class NcclWatchdog:
    """Calls `advance` repeatedly while it returns that operations are under way."""

    def __init__(self, name: str, advance: Callable[[], bool]) -> None:
        self._advance = advance
        self._is_wanted = threading.Event()
        self._has_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_started = False

    def wake(self) -> None:
        """Note that an operation is under way; the caller holds the group's lock."""
        if not self._is_started:
            self._thread.start()
            self._is_started = True
        if not self._is_wanted.is_set():
            self._is_wanted.set()

    def stop(self) -> None:
        """End the thread soon."""
        self._has_stopped.set()
        self._is_wanted.set()

    def _run(self) -> None:
        allow_captures()
        while True:
            self._is_wanted.wait()
            if self._has_stopped.wait(_PAUSE):
                return
            self._is_wanted.clear()
            if self._advance():
                self._is_wanted.set()
