"""Work: the handle of an operation that `async_op=True` started.

A backend of this package derives from it and defines four methods (wait_for,
is_completed, exception, add_done_callback), on which all others build. A class that was
written for torch may override torch's methods instead, at least `wait`. A Work keeps
its arrays alive until it is dropped. Any thread may use it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

from allhands.arrays import Library, library_of, library_of_dtype, library_of_type
from allhands.backends import failures
from allhands.errors import CollectiveTimeoutError, DistError
from allhands.options import to_seconds

if TYPE_CHECKING:
    from allhands.arrays.future import Future

__all__ = ["CombinedWork", "Work", "WorkResult"]

_NO_LIMIT = timedelta(0)


class WorkResult(IntEnum):
    """How an operation ended, as the future of `Work.get_future_result` gives it.

    SUCCESS; TIMEOUT, a `CollectiveTimeoutError`; COMM_ERROR, another `DistError`; or
    UNKNOWN, any other exception.
    """

    SUCCESS = 0
    TIMEOUT = 1
    COMM_ERROR = 2
    UNKNOWN = 100


class Work:
    """An operation under way, as `async_op=True` returns it.

    A Work keeps its arrays alive until it is dropped. Any thread may use it.

    Example:
        ```python
        work = dist.all_reduce(array, async_op=True)
        ...  # compute; leave the array alone
        work.wait()  # or, in asyncio: await work
        ```
    """

    # Class attributes, for subclasses that do not call __init__.
    _outputs: Any = ()
    _read: Any = None  # the type of an array that the operation reads, if it is known
    _future: Any = None
    _listeners: set[threading.Event] | None = None

    def __init__(self, outputs: list[Any] | None = None) -> None:
        self._outputs = [] if outputs is None else outputs

    def __repr__(self) -> str:
        name, error = type(self).__name__, self.exception()
        if error is not None:
            return f"<{name}: failed with {error!r}>"
        return f"<{name}: {'done' if self.is_completed() else 'running'}>"

    def wait_for(self, timeout: timedelta | None) -> None:
        """Return when the operation has succeeded; raise its error if it has failed.

        With None this wait has no limit of its own.
        """
        if type(self).wait is Work.wait:
            raise NotImplementedError(f"{type(self).__name__} does not override wait()")
        self.wait() if timeout is None else self.wait(timeout)

    def is_completed(self) -> bool:
        """Return whether the operation has ended, well or not. Never blocks."""
        return False

    def exception(self) -> BaseException | None:
        """Return the operation's error; None while it runs or if it succeeded."""
        return None

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the operation has ended, or now if it has.

        It may run in a thread of the backend and must not wait for anything.
        """
        if not self.is_completed():
            raise NotImplementedError(
                f"{type(self).__name__} does not tell when it ends: it overrides "
                f"neither get_future() nor add_done_callback()"
            )
        callback()

    @property
    def timeout(self) -> timedelta:
        """The operation's own time limit; zero if it is unknown."""
        return _NO_LIMIT

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Wait until the operation has ended on this rank; outputs may then be read.

        `timeout` limits only this wait; zero means no limit but the operation's own.
        When it passes first, the operation continues, and the program may wait for it
        again. Ctrl-C interrupts the wait.

        Returns:
            True, also on later calls.

        Raises:
            CollectiveTimeoutError: `timeout` passed, or the operation's own limit did.
            DistBackendError: the operation failed; the same error on every call.
        """
        self.wait_for(timeout or None)
        return True

    def synchronize(self) -> None:
        """Call `wait()`: arrays in CPU memory have no stream."""
        self.wait()

    def is_success(self) -> bool:
        """Return whether the operation has succeeded. Never blocks, never raises."""
        return self.is_completed() and self.exception() is None

    def result(self) -> Any:
        """Return the arrays that the operation wrote.

        Raises:
            RuntimeError: the operation has not ended.
            DistBackendError: the operation failed.
        """
        if not self.is_completed():
            raise RuntimeError(
                "Work needs to be completed before calling result(). "
                "Should call wait() before result()."
            )
        self.wait_for(None)
        return self._outputs

    def get_future(self) -> Any:
        """Return a future of the outputs; the same one on every call.

        Of an operation on torch tensors it is a `torch.futures.Future`. Otherwise it
        is a future of this package with the same methods (`wait`, `value`, `then`,
        `done`, `add_done_callback`) and those of `concurrent.futures.Future`. Errors of
        `wait` and `result` then say as much as those of `Work.wait`.
        """
        if self._future is None:
            future = self._new_future()
            if hasattr(future, "before_raising"):  # torch's tells nobody
                future.before_raising = failures.tell
            self.add_done_callback(lambda: self._resolve(future))
            self._future = future
            self._hurry()
        return self._future

    def get_future_result(self) -> Future:
        """Return a future of how the operation ended; it never holds an exception."""
        future: Future = _numpy().new_future()
        self.add_done_callback(lambda: future.set_result(_ending(self.exception())))
        self._hurry()
        return future

    def source_rank(self) -> int:
        """Return the group rank of the sender of a receive's data.

        Raises:
            RuntimeError: this is not a receive.
        """
        raise RuntimeError(
            "source_rank() may only be called on work objects that correspond to a "
            "recv or recv-from-any call."
        )

    def envelope(self) -> tuple[int, int, int]:
        """Return which message a receive with a `Status`, or a probe, has found.

        Returns:
            The group rank of the message's source, its tag, and its number of bytes.

        Raises:
            RuntimeError: this is neither of these, or no message has come yet.
        """
        raise RuntimeError(
            "envelope() may only be called on work objects of a receive or probe"
        )

    def block_current_stream(self) -> NoReturn:
        """Make the current device stream wait for the operation.

        Raises:
            RuntimeError: always for arrays in CPU memory, which have no stream.
        """
        raise RuntimeError(
            "block_current_stream(): this operation has no device stream; call wait()"
        )

    def __await__(self) -> Generator[Any, None, bool]:
        """Run `wait()` without blocking the event loop, as `await work`."""
        import asyncio  # here: slow to import, and loaded already where this is used

        loop = asyncio.get_running_loop()
        finished = loop.create_future()

        def wake() -> None:
            if not finished.done():
                finished.set_result(None)

        def notify() -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(wake)

        self.add_done_callback(notify)
        self._hurry()
        yield from finished
        return self.wait()

    def _hurry(self) -> None:
        """Note that somebody needs the outputs but will not call `wait`.

        If a backend delays an operation until somebody waits, it begins it now.
        """

    def _postpone(self) -> None:
        """Note that somebody will call `wait`, but not at once.

        If a backend begins an operation while nobody waits, it may leave it to that
        wait for a second.
        """

    def _listeners_until_end(self) -> set[threading.Event]:
        """Return events that are set when the operation ends: add one, look, and wait.

        However often threads wait, the operation has one callback for all of them.
        """
        if self._listeners is None:
            listeners: set[threading.Event] = set()

            def tell() -> None:
                for event in listeners.copy():
                    event.set()

            self.add_done_callback(tell)
            self._listeners = listeners  # if two threads come at once, either
            return listeners
        return self._listeners

    def _source_rank(self) -> int:
        """The older name of `source_rank`."""
        return self.source_rank()

    def _new_future(self) -> Any:
        first: Any = self._outputs
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        if not isinstance(first, (list, tuple)):
            return library_of(first).new_future()
        library = _numpy() if self._read is None else library_of_type(self._read)
        return library.new_future()

    def _resolve(self, future: Any) -> None:
        error = self.exception()
        if error is None:
            future.set_result(self._outputs)
        else:
            future.set_exception(error)


class CombinedWork(Work):
    """Several operations of one call as one; it ends when all of them have ended."""

    def __init__(self, works: list[Work], outputs: list[Any]) -> None:
        super().__init__(outputs)
        self._works = works

    @property
    def timeout(self) -> timedelta:
        """The longest of their own time limits."""
        return max((work.timeout for work in self._works), default=_NO_LIMIT)

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`; all parts share the limit."""
        if timeout is not None:
            end = time.monotonic() + to_seconds(timeout)
        for work in self._works:
            if timeout is not None:
                timeout = timedelta(seconds=max(end - time.monotonic(), 1e-6))
            work.wait_for(timeout)

    def is_completed(self) -> bool:
        """See `Work.is_completed`."""
        return all(work.is_completed() for work in self._works)

    def exception(self) -> BaseException | None:
        """Return the error of the first operation that failed."""
        errors = (work.exception() for work in self._works)
        return next((error for error in errors if error is not None), None)

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """See `Work.add_done_callback`; the last operation to end calls it."""
        left = iter(range(len(self._works) - 1, -1, -1))  # next() is atomic

        def count() -> None:
            if next(left) == 0:
                callback()

        for work in self._works:
            work.add_done_callback(count)
        if not self._works:
            callback()

    def _hurry(self) -> None:
        for work in self._works:
            work._hurry()

    def _postpone(self) -> None:
        for work in self._works:
            work._postpone()


def _numpy() -> Library:
    return library_of_dtype("u1")


def _ending(error: BaseException | None) -> WorkResult:
    if error is None:
        return WorkResult.SUCCESS
    if isinstance(error, CollectiveTimeoutError):
        return WorkResult.TIMEOUT
    return WorkResult.COMM_ERROR if isinstance(error, DistError) else WorkResult.UNKNOWN
