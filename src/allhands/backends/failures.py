"""Tells a listener of a failing operation before its caller gets the error.

There is one listener per process, at first none. The core and the hook for uncaught
exceptions call it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

__all__ = ["set_listener", "tell"]

Listener = Callable[[BaseException, "TracebackType | None"], None]

_listener: Listener | None = None


def set_listener(listener: Listener | None) -> None:
    """Call `listener` from now on, in the thread that fails."""
    global _listener
    _listener = listener


def tell(error: BaseException, traceback: TracebackType | None = None) -> None:
    """Tell the listener of `error`; a `traceback` means that it ends the program.

    The call raises nothing except the error of a signal handler: the report matters
    less than the failure itself.
    """
    if _listener is not None:
        with suppress(Exception):
            _listener(error, traceback)
