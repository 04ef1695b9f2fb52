"""What torch's Gloo has begun, as requests that are asked for their end.

A collective of Gloo's says whether it has ended. A message does not until somebody
waits for it, and that wait closes the connection when its limit passes; so a thread
waits for each message, without a limit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

__all__ = ["GlooMessage", "GlooRequest"]

_SLICE = timedelta(milliseconds=20)
"""How long a wait does not look for Ctrl-C and the like."""
_FOREVER = timedelta(days=3650)
_MOST_MESSAGES = 1000


class GlooRequest:
    """A collective that Gloo carries out in threads of its own."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def Test(self) -> bool:
        """Whether it has ended.

        Raises:
            RuntimeError: it failed.
        """
        if not self._work.is_completed():
            return False
        self._work.wait()
        return True

    def block(self) -> None:
        """Wait a little for its end; if that comes, however it ends."""
        with suppress(RuntimeError):
            self._work.wait(_SLICE)


class GlooMessage:
    """A message under way; the `source` of a received one is known when it has come."""

    def __init__(self, work: Any, is_received: bool = False) -> None:
        self.source = -1
        self._is_received = is_received
        self._work = work
        self._is_over = threading.Event()
        self._error: RuntimeError | None = None
        _waiters.run(self._wait)

    def Test(self) -> bool:
        """See `GlooRequest.Test`."""
        if self._is_over.is_set() and self._error is not None:
            raise self._error
        return self._is_over.is_set()

    def block(self) -> None:
        """See `GlooRequest.block`."""
        self._is_over.wait(_SLICE.total_seconds())

    def _wait(self) -> None:
        try:
            self._work.wait(_FOREVER)
            if self._is_received:
                self.source = self._work._source_rank()
        except RuntimeError as error:
            self._error = error
        finally:
            self._is_over.set()


class _Waiters:
    """Threads that wait, one for each that has to, and used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._num_idle = 0
        self._num_threads = 0

    def run(self, wait: Callable[[], None]) -> None:
        """Have a thread call `wait`.

        Raises:
            RuntimeError: too many do so.
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
    """A forked child has none of these threads."""
    global _waiters
    _waiters = _Waiters()


os.register_at_fork(after_in_child=_forget_after_fork)
