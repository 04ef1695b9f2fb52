"""Uncaught exceptions say which rank they come from: every line gets `[rank0]: `.

The interpreter then waits for threads that are no daemons before it runs anything else;
one of them may be waiting for other ranks, and they for this one. So the rank's world
ends as soon as the main thread has.
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
    """Runs the hook that was there before and prefixes what it writes."""

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
        is_uncaught = getattr(sys, "last_value", None) is error  # no program's own call
        if is_uncaught and not self._is_watched:
            with suppress(RuntimeError):  # no thread: the others wait for this process
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

    `end_world` is called when one has ended the main thread and others go on.
    """
    sys.excepthook = _RankHook(rank, end_world)


def restore() -> None:
    """Undo `show_rank`, unless somebody has replaced the hook since."""
    if isinstance(sys.excepthook, _RankHook):
        sys.excepthook = sys.excepthook.before
