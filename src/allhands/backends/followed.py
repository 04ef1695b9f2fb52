"""FollowedWork: an operation of the core, followed by a step on its result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from allhands.arrays import Array, library_of_dtype
from allhands.backends.work import Work
from allhands.errors import CollectiveTimeoutError
from allhands.options import to_seconds

__all__ = ["FollowedWork"]


class FollowedWork(Work):
    """Runs `follow` after `work`; if `work` failed, only where that is asked for.

    When a wait returns or raises what `work` did, `follow` is over. The thread that
    carried out the operation runs `follow`, or a thread that waits for or asks about
    it. If an exception such as `KeyboardInterrupt` ends `follow`, it is called again.
    """

    def __init__(
        self,
        work: Work,
        follow: Callable[[], None],
        outputs: list[Array],
        *,
        after_failure: bool = False,
    ) -> None:
        super().__init__(outputs)
        self._work = work
        self._follow = follow
        self._after_failure = after_failure
        # Reentrant: a signal handler or a finalizer may run while it is held.
        self._lock = threading.RLock()
        self._follower: int | None = None  # the thread that runs `follow`
        self._ended = library_of_dtype("u1").new_future()
        self._error: BaseException | None = None
        work.add_done_callback(self._try_to_end)

    @property
    def timeout(self) -> timedelta:
        """See `Work.timeout`."""
        return self._work.timeout

    def source_rank(self) -> int:
        """See `Work.source_rank`."""
        return self._work.source_rank()

    def envelope(self) -> tuple[int, int, int]:
        """See `Work.envelope`."""
        return self._work.envelope()

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`.

        Raises:
            RuntimeError: the caller has interrupted this thread in `follow`.
        """
        start = time.monotonic()
        try:
            self._work.wait_for(timeout)
        except BaseException:
            if self._work.is_completed():
                self._try_to_end(-1.0)
            raise
        left = -1.0
        if timeout is not None:
            left = max(to_seconds(timeout) - (time.monotonic() - start), 0)
        self._try_to_end(left)
        if not self._ended.done():
            raise self._refusal(timeout)
        if self._error is not None:
            raise self._error

    def is_completed(self) -> bool:
        """See `Work.is_completed`."""
        if self._work.is_completed():
            self._try_to_end()
        is_ended: bool = self._ended.done()
        return is_ended

    def exception(self) -> BaseException | None:
        """See `Work.exception`."""
        return self._error or self._work.exception()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """See `Work.add_done_callback`."""
        self._ended.add_done_callback(lambda _: callback())
        self.is_completed()  # runs `follow` now if it was interrupted

    def _hurry(self) -> None:
        self._work._hurry()

    def _postpone(self) -> None:
        self._work._postpone()

    def _try_to_end(self, patience: float = 0) -> None:
        """Run `follow`, unless it has run.

        While another thread runs it, wait up to `patience` seconds; -1 means no limit.
        """
        if self._ended.done() or not self._lock.acquire(timeout=patience):
            return
        try:
            if self._follower is None:
                self._end()
        finally:
            self._lock.release()

    def _end(self) -> None:
        """Run `follow`, and tell the threads that wait for it."""
        try:
            self._follower = threading.get_ident()
            if self._ended.done():
                return
            if self._after_failure or self._work.exception() is None:
                try:
                    self._follow()
                except Exception as error:
                    self._error = error
            self._ended.set_result(None)
        finally:
            self._follower = None

    def _refusal(self, timeout: timedelta | None) -> Exception:
        if self._follower == threading.get_ident():
            return RuntimeError(
                "Work.wait: this thread is just writing the operation's result, and "
                "was interrupted by what waits for it, as by a signal's handler; wait "
                "when that has returned"
            )
        assert timeout is not None, "without a limit only this thread's own hold fails"
        return CollectiveTimeoutError(
            f"Work.wait timed out: another thread was still writing the operation's "
            f"result after {to_seconds(timeout):g} s; wait again for it"
        )
