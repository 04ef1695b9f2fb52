"""Future: what an asynchronous operation on arrays other than torch's will give.

It has the methods of both worlds: those of `concurrent.futures.Future`, so that
`asyncio.wrap_future` and `concurrent.futures.wait` take it, and those of
`torch.futures.Future`, so that programs written for tensors work on NumPy arrays.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, cast

__all__ = ["Future"]


class Future(concurrent.futures.Future[Any]):
    """The outputs of an operation, once it has ended; it cannot be cancelled.

    Any thread may use it.

    Example:
        ```python
        future = dist.all_reduce(array, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        doubled.wait()
        ```
    """

    def __init__(self) -> None:
        super().__init__()
        self.before_raising: Callable[[BaseException], object] | None = None
        """Called once, with the error, by the first thread that waited and gets it."""
        # Reentrant: a signal handler may wait for it, too.
        self._telling = threading.RLock()
        self._resolver = 0
        self.set_running_or_notify_cancel()

    def wait(self) -> Any:
        """Block until there is a value and return it, or raise what went wrong."""
        return self.result()

    def result(self, timeout: float | None = None) -> Any:
        """Do the same as `wait`, for `timeout` seconds at most."""
        error = self.exception(timeout)
        # The thread that resolves it must not be held up in its callbacks.
        if error is not None and threading.get_ident() != self._resolver:
            self._tell(error)
        return super().result(0)

    def set_exception(self, exception: BaseException | None) -> None:
        """Let who waits get the error."""
        self._resolver = threading.get_ident()
        try:
            super().set_exception(exception)  # this runs the callbacks
        finally:
            self._resolver = 0

    def value(self) -> Any:
        """The value, which must be there.

        Raises:
            RuntimeError: it is not; call `wait()`.
        """
        if not self.done():
            raise RuntimeError("Future has no value yet: call wait() first")
        return self.result()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what `callback(self)` returns, once this one is done.

        The callback may run in a thread of the backend and must not wait for anything;
        what it raises is the new future's error.
        """
        after = Future()
        after.before_raising = self._tell

        # It does not name `self`, which keeps it: no cycle is left to hold the arrays.
        def resolve(done: concurrent.futures.Future[Any]) -> None:
            try:
                value = callback(cast(Future, done))
            except BaseException as error:  # told to who waits for it
                after.set_exception(error)
            else:
                after.before_raising = None
                after.set_result(value)

        self.add_done_callback(resolve)
        return after

    def _tell(self, error: BaseException) -> None:
        with self._telling:  # another thread that gets it waits until it is told
            tell, self.before_raising = self.before_raising, None
            if tell is not None:
                tell(error)
