"""Operations that torch's Gloo has begun, as requests that can be tested for their end.

A collective of Gloo says whether it has ended. A message says so only to a thread that
waits for it, and if the limit of this wait passes, the wait closes the connection. So
for each message a thread waits without a limit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from allhands.backends.threaded_request import ThreadedRequest

__all__ = ["GlooMessage", "GlooRequest"]

_SLICE = timedelta(milliseconds=20)
"""A wait does not notice Ctrl-C for this time."""
_FOREVER = timedelta(days=3650)
_MOST_MESSAGES = 1000


class GlooRequest:
    """A collective that Gloo carries out in its own threads."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def Test(self) -> bool:
        """Return whether it has ended.

        Raises:
            RuntimeError: it failed.
        """
        if not self._work.is_completed():
            return False
        self._work.wait()
        return True

    def ends_soon(self, num_tests: int) -> bool:
        """Return whether it ends while it is tested this often.

        Raises:
            RuntimeError: it failed.
        """
        is_completed = self._work.is_completed
        for _ in range(num_tests):
            if is_completed():
                self._work.wait()
                return True
        return False

    def block(self) -> None:
        """Wait a little for its end, however it ends."""
        with suppress(RuntimeError):
            self._work.wait(_SLICE)


class GlooMessage(ThreadedRequest):
    """A message under way; a received one has its `source` when it has come."""

    def __init__(self, work: Any, is_received: bool = False) -> None:
        super().__init__(self._wait)
        self.source = -1
        self._is_received = is_received
        self._work = work
        _waiters.run(self.run)

    def _wait(self) -> None:
        self._work.wait(_FOREVER)
        if self._is_received:
            self.source = self._work._source_rank()


class _Waiters:
    """Threads that wait, one per message, and are used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._num_idle = 0
        self._num_threads = 0

    def run(self, wait: Callable[[], None]) -> None:
        """Let a thread call `wait`.

        Raises:
            RuntimeError: too many threads wait already.
        """
        with self._lock:
            if self._num_idle:
                self._num_idle -= 1
            elif self._num_threads == _MOST_MESSAGES:
                raise RuntimeError(
                    f"backend 'gloo': {_MOST_MESSAGES} messages are under way in this "
                    f"process, each of which takes a thread: wait for some of them"
                )
            else:
                thread = threading.Thread(
                    target=self._serve, name="allhands gloo", daemon=True
                )
                thread.start()
                self._num_threads += 1
        self._queue.put(wait)

    def _serve(self) -> None:
        while True:
            self._queue.get()()
            with self._lock:
                self._num_idle += 1


_waiters = _Waiters()


def _forget_after_fork() -> None:
    """A forked child has none of these threads: start anew."""
    global _waiters
    _waiters = _Waiters()


os.register_at_fork(after_in_child=_forget_after_fork)
