"""PersistentRequest: an operation that is prepared once and run again and again.

The native backend has one of its own; `PlainRequest` is that of every other one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from allhands import _C
from allhands.backends.call import Call
from allhands.backends.work import Work

__all__ = ["PersistentRequest", "PlainRequest"]


class PersistentRequest(ABC):
    """An operation with its arrays, ready to run any number of times.

    What `all_reduce_init` and its like return. `request()` runs the operation and
    returns when this rank's outputs hold the result, as the plain call does; `start()`
    and `wait()` are its two halves. It holds the arrays' memory as it was when the
    request was made: their contents may change between runs, but they must not be
    resized or given other memory (`tensor.data = ...`). For one thread at a time.

    The other ranks may call the plain form or make a request of their own; each run
    counts as one call in the order of calls on the group. Errors are those of the plain
    call. After `destroy_process_group` a run is a `DistBackendError`.

    Example:
        ```python
        reduce_gradient = dist.all_reduce_init(gradient, dist.ReduceOp.AVG)
        for batch in batches:
            compute(batch, out=gradient)
            reduce_gradient()
        ```
    """

    @abstractmethod
    def __call__(self) -> None:
        """Run the operation to its end.

        Raises:
            RuntimeError: it is under way already.
        """

    @abstractmethod
    def start(self) -> None:
        """Begin the operation and return; its arrays are to be left alone until `wait`.

        Raises:
            RuntimeError: it is under way already.
        """

    @abstractmethod
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True when what `start` began has ended.

        `timeout` limits this wait only: when it passes first, the operation goes on and
        may be waited for again.

        Raises:
            RuntimeError: nothing was started.
            CollectiveTimeoutError: `timeout` passed, or the operation's own limit did.
        """

    @abstractmethod
    def is_active(self) -> bool:
        """Whether it was started and not waited for yet. Never blocks."""


PersistentRequest.register(_C.Request)


class PlainRequest(PersistentRequest):
    """One that submits the same `call` each time."""

    def __init__(self, call: Call, submit: Callable[[Call], Work | None]) -> None:
        self._call = call
        self._submit = submit
        self._work: Work | None = None
        self._is_active = False

    def __call__(self) -> None:
        """See `PersistentRequest.__call__`."""
        self._activate()
        try:
            self._submit(self._call)
        finally:
            self._is_active = False

    def start(self) -> None:
        """See `PersistentRequest.start`."""
        self._activate()
        try:
            self._work = self._submit(replace(self._call, async_op=True))
        except BaseException:
            self._is_active = False
            raise

    def wait(self, timeout: timedelta | None = None) -> bool:
        """See `PersistentRequest.wait`."""
        work = self._work
        if work is None:
            raise RuntimeError(
                f"persistent {self._call.op}: nothing to wait for; call start() first"
            )
        try:
            work.wait(timeout or timedelta(0))
        except BaseException:
            if work.is_completed():
                self._end()
            raise
        self._end()
        return True

    def is_active(self) -> bool:
        """See `PersistentRequest.is_active`."""
        return self._is_active

    def _end(self) -> None:
        self._work = None
        self._is_active = False

    def _activate(self) -> None:
        if self._is_active:
            raise RuntimeError(
                f"persistent {self._call.op}: it is under way already; wait() for what "
                f"was started first"
            )
        self._is_active = True
