"""Observer: what watches the operations of a group, one before and one after each.

Each operation passes it once, sync or async. The native core tells it of collectives,
shared arrays and messages; what Python carries out, with several of these or with none,
is told of by `observing`: object operations, and waits on the store while groups are
made. Nothing is made, and nothing called, while nobody watches.

A hook (`allhands.backends.hooks`) is another thing: it stands in front of the
communicator of one group, is handed the caller's arrays, and can refuse the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Observer", "OperationRecord", "observing"]


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """What there is to know of an operation when it is issued."""

    group: str
    """Its name; empty while the world's ranks meet."""
    op: str
    """The public function, or what it comes down to: "all_gather", "send"."""
    sequence: int = 0
    """The collective's number in its group; 0 where it is none."""
    dtype: str = ""
    """As in "float32"; empty where there is no array."""
    count: int = 0
    """Elements, as the ranks agree on them."""
    root: int = -1
    """A rank of the group; -1 where the operation has none."""
    peer: int = -1
    """Of a message, a rank of the group; -1 for any source."""
    tag: int = 0
    async_op: bool = False


class Observer(Protocol):
    """Is told of operations. Thread-safe; must not raise, nor use the groups."""

    def before(self, operation: OperationRecord) -> int:
        """`operation` is issued by this thread; the result is passed to `after`."""

    def after(self, token: int, error: BaseException | None) -> None:
        """It has ended, in this thread; `error` is None where it succeeded."""


@contextmanager
def observing(observer: Observer | None, group: str, op: str) -> Iterator[None]:
    """Tell `observer` of an operation that the `with` block is; None: nobody."""
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
