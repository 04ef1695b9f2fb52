"""Prefixes uncaught exceptions with their rank: every line gets `[rank0]: `.

After an uncaught exception the interpreter waits for threads that are not daemons
before it runs anything else. Such a thread may wait for other ranks, and they may wait
for this rank. So the rank's world ends as soon as the main thread has ended.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from types import TracebackType

from allhands.backends import failures

__all__ = ["restore", "show_rank"]


class _RankHook:
    """Runs the previous hook and prefixes its output."""

    def __init__(self, rank: int, end_world: Callable[[], None]) -> None:
        self.rank = rank
        self.end_world = end_world
        self._is_watched = False
        self.before = sys.excepthook

    def __call__(
        self,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        failures.tell(error, traceback)
        with redirect_stderr(io.StringIO()) as text:
            self.before(kind, error, traceback)
        lines = text.getvalue().splitlines()
        sys.stderr.write("".join(f"[rank{self.rank}]: {line}\n" for line in lines))
        # not a call by the program
        is_uncaught = getattr(sys, "last_value", None) is error
        if is_uncaught and not self._is_watched:
            # no thread can start: the others wait for this process
            with suppress(RuntimeError):
                threading.Thread(target=self._end_world_with_main).start()
                self._is_watched = True  # a prompt survives any number of exceptions

    def _end_world_with_main(self) -> None:
        threading.main_thread().join()
        this = threading.current_thread()
        others = [thread for thread in threading.enumerate() if thread is not this]
        if any(thread.is_alive() and not thread.daemon for thread in others):
            self.end_world()


def show_rank(rank: int, end_world: Callable[[], None]) -> None:
    """Prefix uncaught exceptions of this process with `rank`, until `restore`.

    If an exception ends the main thread while other threads run, `end_world` is called.
    """
    sys.excepthook = _RankHook(rank, end_world)


def restore() -> None:
    """Undo `show_rank`, unless other code has replaced the hook since."""
    if isinstance(sys.excepthook, _RankHook):
        sys.excepthook = sys.excepthook.before
