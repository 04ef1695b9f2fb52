"""ThreadedRequest: what a thread does, as a request that is tested for its end."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["ThreadedRequest"]

_SLICE_S = 0.02
"""A wait does not notice Ctrl-C for this time."""


class ThreadedRequest:
    """A function that some thread runs."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._is_over = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Run it, in this thread."""
        try:
            self._function()
        except Exception as error:
            self._error = error
        finally:
            # It may be a method of this object, which would be kept by it, with arrays.
            del self._function
            self._is_over.set()

    def is_over(self) -> bool:
        """Return whether it has ended, well or not."""
        return self._is_over.is_set()

    def Test(self) -> bool:
        """Return whether it has ended.

        Raises:
            Exception: it raised this.
        """
        if self._is_over.is_set() and self._error is not None:
            raise self._error
        return self._is_over.is_set()

    def block(self) -> None:
        """Wait a little for its end, however it ends."""
        self._is_over.wait(_SLICE_S)
