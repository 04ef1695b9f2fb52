"""Work: the handle of an operation that `async_op=True` started.

A backend of ours derives from it and gives four methods (wait_for, is_completed,
exception, add_done_callback); everything else is made of them. One that was written for
torch may override torch's instead, `wait` at least. A Work keeps its arrays alive until
it is dropped. Any thread may use it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

from allhands.arrays import Library, library_of, library_of_dtype
from allhands.errors import CollectiveTimeoutError, DistError
from allhands.options import to_seconds

if TYPE_CHECKING:
    from allhands.arrays.future import Future

__all__ = ["CombinedWork", "Work", "WorkResult"]

_NO_LIMIT = timedelta(0)


class WorkResult(IntEnum):
    """How an operation ended; what `Work.get_future_result` resolves to.

    SUCCESS; TIMEOUT, a `CollectiveTimeoutError`; COMM_ERROR, another `DistError`; or
    UNKNOWN, any other exception.
    """

    SUCCESS = 0
    TIMEOUT = 1
    COMM_ERROR = 2
    UNKNOWN = 100


class Work:
    """An operation under way, as `async_op=True` returns it.

    It keeps its arrays alive until it is dropped. Any thread may use it.

    Example:
        ```python
        work = dist.all_reduce(array, async_op=True)
        ...  # compute; leave the array alone
        work.wait()  # or, in asyncio: await work
        ```
    """

    # On the class, for subclasses that do not call __init__.
    _outputs: Any = ()
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
        """Return when the operation has finished well; raise its error otherwise.

        None: without a limit of this wait's own.
        """
        if type(self).wait is Work.wait:
            raise NotImplementedError(f"{type(self).__name__} does not override wait()")
        self.wait() if timeout is None else self.wait(timeout)

    def is_completed(self) -> bool:
        """Whether the operation has finished, well or not. Never blocks."""
        return False

    def exception(self) -> BaseException | None:
        """The operation's error; None while it runs and when it went well."""
        return None

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the operation has finished, or now if it has.

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
        """The operation's own time limit; zero where it is not known."""
        return _NO_LIMIT

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block until the operation has finished on this rank; its outputs may be read.

        `timeout` limits this wait only (zero: the operation's own limit): when it
        passes first, the operation goes on and may be waited for again. Ctrl-C is
        obeyed.

        Returns:
            True, also when called again.

        Raises:
            CollectiveTimeoutError: `timeout` passed, or the operation's own limit did.
            DistBackendError: the operation failed; the same error on every call.
        """
        self.wait_for(timeout or None)
        return True

    def synchronize(self) -> None:
        """`wait()`: for arrays in CPU memory there is no stream to order after."""
        self.wait()

    def is_success(self) -> bool:
        """Whether the operation has finished well. Never blocks, never raises."""
        return self.is_completed() and self.exception() is None

    def result(self) -> Any:
        """The arrays that the operation wrote.

        Raises:
            RuntimeError: it has not finished.
            DistBackendError: it failed.
        """
        if not self.is_completed():
            raise RuntimeError(
                "Work needs to be completed before calling result(). "
                "Should call wait() before result()."
            )
        self.wait_for(None)
        return self._outputs

    def get_future(self) -> Any:
        """A future of the outputs; the same one on every call.

        A `torch.futures.Future` where the outputs are torch tensors, otherwise one of
        ours with the same methods (`wait`, `value`, `then`, `done`,
        `add_done_callback`) and those of `concurrent.futures.Future`.
        """
        if self._future is None:
            future = self._new_future()
            self.add_done_callback(lambda: self._resolve(future))
            self._future = future
            self._hurry()
        return self._future

    def get_future_result(self) -> Future:
        """A future that says how the operation ended; it never holds an exception."""
        future: Future = _numpy().new_future()
        self.add_done_callback(lambda: future.set_result(_ending(self.exception())))
        self._hurry()
        return future

    def source_rank(self) -> int:
        """The group rank that a receive got its data from.

        Raises:
            RuntimeError: this is no receive.
        """
        raise RuntimeError(
            "source_rank() may only be called on work objects that correspond to a "
            "recv or recv-from-any call."
        )

    def envelope(self) -> tuple[int, int, int]:
        """What a receive with a `Status`, or a probe, has met, of which it tells.

        Returns:
            The message's source in the group, its tag, and its bytes.

        Raises:
            RuntimeError: this is none of these; nothing has come yet.
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
        """`await work`: `wait()` without blocking the event loop."""
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
        """Someone needs the outputs who will not call `wait`.

        A backend that lets an operation lie until somebody waits begins it now.
        """

    def _postpone(self) -> None:
        """Someone will call `wait`, but not at once.

        A backend that begins an operation while nobody waits may leave it to that wait,
        for a second.
        """

    def _listeners_until_end(self) -> set[threading.Event]:
        """Events to be set when the operation has ended: add one, look, and wait.

        However often somebody waits, the operation has one callback for all of them.
        """
        if self._listeners is None:
            listeners: set[threading.Event] = set()

            def tell() -> None:
                for event in listeners.copy():
                    event.set()

            self.add_done_callback(tell)
            self._listeners = listeners  # of two threads' that come at once, either
            return listeners
        return self._listeners

    def _source_rank(self) -> int:
        """The older name of `source_rank`."""
        return self.source_rank()

    def _new_future(self) -> Any:
        first: Any = self._outputs
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        is_empty = isinstance(first, (list, tuple))
        return (_numpy() if is_empty else library_of(first)).new_future()

    def _resolve(self, future: Any) -> None:
        error = self.exception()
        if error is None:
            future.set_result(self._outputs)
        else:
            future.set_exception(error)


class CombinedWork(Work):
    """Several operations of one call, as one; it ends when all have ended."""

    def __init__(self, works: list[Work], outputs: list[Any]) -> None:
        super().__init__(outputs)
        self._works = works

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
        """That of the first operation that failed."""
        errors = (work.exception() for work in self._works)
        return next((error for error in errors if error is not None), None)

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """See `Work.add_done_callback`: called by the last operation to end."""
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
