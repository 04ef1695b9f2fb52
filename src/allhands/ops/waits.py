"""Waits for some of several operations under way, whichever end first.

The list holds handles that `async_op=True`, `isend` and `irecv` returned. An entry None
stands for an operation that needs no wait any more, like MPI's REQUEST_NULL. So a
program can replace an ended operation by None and pass the same list again. Any thread
may wait, and several threads may wait for the same operations.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import timedelta

from allhands.backends.work import Work
from allhands.errors import CollectiveTimeoutError
from allhands.options import to_seconds

__all__ = ["wait_any", "wait_some"]


def wait_any(
    works: Iterable[Work | None], *, timeout: timedelta | None = None
) -> int | None:
    """Return, when one of several operations has ended, its index in `works`.

    If some have ended before, the call returns at once, with the first of these in the
    list. If the operation failed, the call raises its error. `timeout` limits only this
    wait: when it passes, the operations continue until their own limits. By default
    there are only these limits.

    Returns:
        The index; None if nothing is left to wait for: the list is empty, or every
        entry is None.

    Raises:
        TypeError: `works` is not a list, or an entry is neither a `Work` nor None.
        CollectiveTimeoutError: `timeout` passed, or the operation's own limit did.
        DistBackendError: the operation failed.

    Example:
        ```python
        works = [dist.irecv(array, src) for src, array in enumerate(arrays, 1)]
        while (index := dist.wait_any(works)) is not None:
            use(arrays[index])
            works[index] = None
        ```
    """
    listed = _listed(works, "wait_any")
    ended = _wait(listed, "wait_any", timeout)
    if not ended:
        return None
    _wait_for(listed, ended[:1])
    return ended[0]


def wait_some(
    works: Iterable[Work | None], *, timeout: timedelta | None = None
) -> list[int]:
    """Return, when one or more of several operations have ended, all their indices.

    Otherwise this works like `wait_any`. If some operations failed, the call raises the
    error of the first of these; the other operations still hold their own errors.

    Returns:
        The indices, ascending; empty if nothing is left to wait for.

    Raises:
        TypeError: `works` is not a list, or an entry is neither a `Work` nor None.
        CollectiveTimeoutError: `timeout` passed, or an operation's own limit did.
        DistBackendError: an operation failed.

    Example:
        ```python
        for index in dist.wait_some(works):
            use(arrays[index])
            works[index] = None
        ```
    """
    listed = _listed(works, "wait_some")
    ended = _wait(listed, "wait_some", timeout)
    _wait_for(listed, ended)
    return ended


def _listed(works: Iterable[Work | None], call: str) -> list[Work | None]:
    """Return the entries as a list, because they are read more than once."""
    if not isinstance(works, Iterable):
        raise TypeError(f"{call} wants a list of Works or None, got {works!r}")
    listed = list(works)
    for entry in listed:
        if entry is not None and not isinstance(entry, Work):
            raise TypeError(f"{call}: the list has Works or None, got {entry!r}")
    return listed


def _wait(
    works: Sequence[Work | None], call: str, timeout: timedelta | None
) -> list[int]:
    """Return the indices of ended operations, at least one if there are any."""
    under_way = [work for work in works if work is not None]
    limit = None if timeout is None else to_seconds(timeout)
    ended = _ended(works)
    if ended or not under_way:
        return ended
    bell = threading.Event()
    listening = [work._listeners_until_end() for work in under_way]
    try:
        for listeners in listening:
            listeners.add(bell)
        for work in under_way:
            work._hurry()
        # An operation that ended before it was listened to is found by this look; the
        # others set the event.
        ended = _ended(works)
        most = None if limit is None else min(limit, threading.TIMEOUT_MAX)
        if not ended and not bell.wait(most):
            raise CollectiveTimeoutError(
                f"{call} timed out: waited {limit:g} s for one of {len(under_way)} "
                f"operations, which go on until their own limits"
            )
    finally:
        for listeners in listening:
            listeners.discard(bell)
    ended = ended or _ended(works)
    assert ended, "an operation that tells that it has ended has ended"
    return ended


def _ended(works: Sequence[Work | None]) -> list[int]:
    return [
        index
        for index, work in enumerate(works)
        if work is not None and work.is_completed()
    ]


def _wait_for(works: Sequence[Work | None], ended: list[int]) -> None:
    """Raise the errors of the ended operations."""
    for index in ended:
        work = works[index]
        if work is not None:
            work.wait()
