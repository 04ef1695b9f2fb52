"""A watch on the waits of a program in a store, which may end them by an exception.

A store does not know who will write what it is asked for. Code that knows the ranks of
a job can look after them here, and tell people of long waits.
"""

from __future__ import annotations

from collections.abc import Callable

from allhands._C import watch_store_waits

__all__ = ["look", "watch_waits"]

_watches: list[Callable[[float, float], None]] = []


def watch_waits(watch: Callable[[float, float], None]) -> None:
    """Call `watch(waited, limit)` in each thread that waits in a store.

    It is called ten times a second, with the seconds since the request began and the
    limit of the request. If it raises, the request ends with this exception.
    """
    _watches.append(watch)


def look(waited: float, limit: float) -> None:
    """Call what watches the waits in stores; each wait calls this."""
    for watch in _watches:
        watch(waited, limit)


watch_store_waits(look)
