"""Waits for some of several operations under way, whichever end first.

The list holds what `async_op=True`, `isend` and `irecv` returned. None stands for what
need not be waited for any more, as MPI's REQUEST_NULL does, so a program can put None
where an operation has ended and pass the same list again. Any thread may wait, and
several may wait for the same operations.
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
    """Return when one of several operations has ended: its index in `works`.

    At once where some have ended before, then the first of these in the list. Where
    the operation failed, its error is raised. `timeout` limits this wait only: when it
    passes, the operations go on, until their own limits. By default only these count.

    Returns:
        The index; None where nothing is left to wait for: the list is empty, or every
        entry None.

    Raises:
        TypeError: it is no list, or an entry is neither a `Work` nor None.
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
    """Return when one or more of several operations have ended: all their indices.

    As `wait_any` otherwise. Where some of them failed, the error of the first of these
    is raised; the others can be asked for theirs.

    Returns:
        The indices, ascending; empty where nothing is left to wait for.

    Raises:
        TypeError: it is no list, or an entry is neither a `Work` nor None.
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
    """The entries, which are asked more than once."""
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
    """The indices of those that have ended, at least one if there are any."""
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
        # What ended before it was listened to is seen now, the rest is heard.
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
    """Raise what they raise."""
    for index in ended:
        work = works[index]
        if work is not None:
            work.wait()
