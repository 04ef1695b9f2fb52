"""Observer: watches the operations of a group; it is called before and after each.

Each operation, sync or async, passes the observer once. The native core reports
collectives, shared arrays and messages. `observing` reports operations that Python
carries out, with several core operations or none: object operations, and waits on the
store while groups are made. Without an observer, nothing is allocated or called.

A hook (`allhands.backends.hooks`) is different: it stands in front of the communicator
of one group, gets the caller's arrays, and can refuse the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Observer", "OperationRecord", "observing"]


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """What is known of an operation when it is issued."""

    group: str
    """The name of the group; empty while the world's ranks meet."""
    op: str
    """The public function, or its implementation: "all_gather", "send"."""
    sequence: int = 0
    """The collective's number in its group; 0 if it is not a collective."""
    dtype: str = ""
    """The dtype, such as "float32"; empty without an array."""
    count: int = 0
    """The number of elements, on which the ranks agree."""
    root: int = -1
    """A group rank; -1 if the operation has no root."""
    peer: int = -1
    """The peer of a message, a group rank; -1 means any source."""
    tag: int = 0
    async_op: bool = False


class Observer(Protocol):
    """Called for operations. Thread-safe; must neither raise nor use the groups."""

    def before(self, operation: OperationRecord) -> int:
        """This thread issues `operation`; the result is passed to `after`."""

    def after(self, token: int, error: BaseException | None) -> None:
        """The operation ended in this thread; `error` is None if it succeeded."""


@contextmanager
def observing(observer: Observer | None, group: str, op: str) -> Iterator[None]:
    """Report a `with` block to `observer` as an operation; None reports nothing."""
    if observer is None:
        yield
        return
    token = observer.before(OperationRecord(group, op))
    try:
        yield
    except BaseException as error:
        observer.after(token, error)
        raise
    observer.after(token, None)
