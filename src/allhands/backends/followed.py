"""FollowedWork: an operation of the core, and what this rank does with its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from allhands.arrays import Array
from allhands.backends.work import Work

__all__ = ["FollowedWork"]


class FollowedWork(Work):
    """`work`, and after it `follow`, unless it failed.

    `follow` runs in the thread that carried the operation out, or in one that waits. It
    may be called again if an exception such as `KeyboardInterrupt` ended it.
    """

    def __init__(
        self, work: Work, follow: Callable[[], None], outputs: list[Array]
    ) -> None:
        super().__init__(outputs)
        self._work = work
        self._follow = follow
        self._lock = threading.Lock()
        self._is_ended = False
        self._error: BaseException | None = None
        work.add_done_callback(self._end)

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`."""
        self._work.wait_for(timeout)
        self._end()
        if self._error is not None:
            raise self._error

    def is_completed(self) -> bool:
        """See `Work.is_completed`."""
        return self._is_ended

    def exception(self) -> BaseException | None:
        """See `Work.exception`."""
        return self._error or self._work.exception()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """See `Work.add_done_callback`."""

        def end() -> None:
            self._end()
            callback()

        self._work.add_done_callback(end)

    def _end(self) -> None:
        """Do what follows, once."""
        with self._lock:
            if self._is_ended:
                return
            if self._work.exception() is None:
                try:
                    self._follow()
                except Exception as error:
                    self._error = error
            self._is_ended = True
