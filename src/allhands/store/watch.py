"""A watch on the waits of a program in a store, which may end them by an exception.

A store does not know who will write what it is asked for. Code that knows the ranks of
a job can look after them here.
"""

from __future__ import annotations

from collections.abc import Callable

from allhands._C import watch_store_waits

__all__ = ["look", "watch_waits"]

_watches: list[Callable[[], None]] = []


def watch_waits(watch: Callable[[], None]) -> None:
    """Call `watch` in each thread that waits in a store, ten times a second.

    If it raises, the request ends with this exception.
    """
    _watches.append(watch)


def look() -> None:
    """Call what watches the waits in stores; each wait calls this."""
    for watch in _watches:
        watch()


watch_store_waits(look)
