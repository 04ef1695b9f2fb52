"""PersistentRequest: an operation that is prepared once and run many times.

The native backend has its own class. All other backends use `PlainRequest`.
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

    `all_reduce_init` and similar functions return one. `request()` runs the operation
    and returns when this rank's outputs hold the result, as the plain call does.
    `start()` and `wait()` are its two halves. The request keeps the memory that the
    arrays had when it was made. The contents of the arrays may change between runs, but
    the arrays must not be resized or get other memory (`tensor.data = ...`): then a run
    raises ValueError. Only one thread at a time may use a request.

    Other ranks may use the plain call or a request of their own. Each run counts as one
    call in the order of calls on the group. A run raises the errors of the plain call.
    After `destroy_process_group` a run raises `DistBackendError`.

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
            RuntimeError: the operation is under way already.
        """

    @abstractmethod
    def start(self) -> None:
        """Begin the operation and return; do not use its arrays until `wait` returns.

        Raises:
            RuntimeError: the operation is under way already.
        """

    @abstractmethod
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return True when the operation that `start` began has ended.

        `timeout` limits only this wait. When it passes first, the operation continues,
        and the program may wait for it again.

        Raises:
            RuntimeError: nothing was started.
            CollectiveTimeoutError: `timeout` passed, or the operation's own limit did.
        """

    @abstractmethod
    def is_active(self) -> bool:
        """Return whether it was started and not waited for yet. Never blocks."""


PersistentRequest.register(_C.Request)


class PlainRequest(PersistentRequest):
    """A request that submits the same `call` each time."""

    def __init__(self, call: Call, submit: Callable[[Call], Work | None]) -> None:
        self._call = call
        self._submit = submit
        self._work: Work | None = None
        self._is_active = False

    def __repr__(self) -> str:
        state = "under way" if self._is_active else "idle"
        return f"<PersistentRequest: {self._call.op}, {state}>"

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
