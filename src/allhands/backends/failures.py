"""Who is told when an operation fails, before its caller is.

One per process; the core and the hook of uncaught exceptions tell it. At first nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

__all__ = ["set_listener", "tell"]

Listener = Callable[[BaseException, "TracebackType | None"], None]

_listener: Listener | None = None


def set_listener(listener: Listener | None) -> None:
    """Have `listener` called from now on, in the thread that fails."""
    global _listener
    _listener = listener


def tell(error: BaseException, traceback: TracebackType | None = None) -> None:
    """`error` is about to be raised, or with a `traceback` to end the program.

    Never raises but what a signal's handler does: what is told matters less than what
    it is told of.
    """
    if _listener is not None:
        with suppress(Exception):
            _listener(error, traceback)
