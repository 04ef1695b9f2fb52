"""A communicator whose ranks compare data that must be the same after each collective.

The ranks exchange hashes over a second group, which always uses the native engine. So
the numbers and messages of the checked group are the same as without the check. A
thread compares one operation after the other, in the order in which they began. So no
rank waits in the comparison for an action that another rank takes only after its own
wait. An operation has ended when it has been compared.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np

from allhands.arrays import Array
from allhands.backends.call import Call
from allhands.backends.checking import CheckingCommunicator, checked_by
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.content import COMPARED, Content, compare
from allhands.backends.frames import source_lines
from allhands.backends.front import FrontCommunicator
from allhands.backends.native import NativeCommunicator
from allhands.backends.work import Work
from allhands.errors import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    ContentMismatchError,
    DistBackendError,
    RankFailedError,
)
from allhands.options import to_seconds
from allhands.rendezvous.ranges import in_ranges

_LAST_WORD = 5.0
_MESSAGES = ("send", "recv", "recv_status", "probe", "iprobe")

__all__ = ["CheckedCommunicator", "CheckedWork", "content_checked"]

_REMEDY = (
    "see that nothing writes to these arrays while the operation is under way; else "
    "the memory, network or library of an odd rank's host changes bits: test that "
    "host, or go on without it"
)


def content_checked(
    communicator: Communicator, options: CommunicatorOptions
) -> Communicator:
    """Return `communicator`, behind a check of contents if the setting asks for it.

    Raises as `checked_by` does.
    """
    return checked_by(CheckedCommunicator, "content", communicator, options)


class _Check:
    """An operation under way, and the result of its comparison."""

    def __init__(
        self, call: Call, content: Content, number: int, subject: str, work: Work
    ) -> None:
        self.call, self.content, self.number = call, content, number
        self.subject, self.work = subject, work
        self.ended: Future[BaseException | None] = Future()


class CheckedWork(Work):
    """An operation whose ranks compare the data that they have in common."""

    def __init__(self, check: _Check) -> None:
        super().__init__(check.work._outputs)
        self._read = check.work._read
        self._check = check

    @property
    def timeout(self) -> timedelta:
        """See `Work.timeout`."""
        return self._check.work.timeout

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`."""
        limit = None if timeout is None else to_seconds(timeout)
        most = None if limit is None else min(limit, threading.TIMEOUT_MAX)
        try:
            error = self._check.ended.result(most)
        except FutureTimeoutError:
            raise CollectiveTimeoutError(
                f"Work.wait timed out: waited {limit:g} s for {self._check.subject} "
                f"and its check of contents, which go on until their own limit is over"
            ) from None
        if error is not None:
            raise error

    def is_completed(self) -> bool:
        """See `Work.is_completed`."""
        return self._check.ended.done()

    def exception(self) -> BaseException | None:
        """See `Work.exception`."""
        return self._check.ended.result() if self._check.ended.done() else None

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """See `Work.add_done_callback`."""
        self._check.ended.add_done_callback(lambda _: callback())


class CheckedCommunicator(CheckingCommunicator):
    """See the module. Any thread may use it."""

    def __init__(
        self,
        communicator: Communicator,
        beside: Communicator,
        options: CommunicatorOptions,
    ) -> None:
        super().__init__(communicator, beside, options)
        self._timeout = options.timeout
        self._num_collectives = 0
        self._num_checks = 0
        self._order = threading.RLock()  # a signal handler may begin an operation
        self._begun: SimpleQueue[_Check | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`; data on other devices is not compared."""
        if not _is_compared(call):
            work = self.communicator.submit(call)
            if call.op not in _MESSAGES:
                self._count(call)
            return work
        checked = self._begin(call, Content(call, self._rank, self._size))
        if call.async_op:
            return checked
        checked.wait()
        return None

    def empty_shared(
        self, shape: tuple[int, ...], dtype: Any, timeout: timedelta | None
    ) -> Array:
        """See `Communicator.empty_shared`, which counts as a collective."""
        array = super().empty_shared(shape, dtype, timeout)
        self._num_collectives += 1
        return array

    def close(self, grace: float) -> None:
        """See `Communicator.close`; it first compares operations that have ended."""
        end = time.monotonic() + grace
        with ExitStack() as rest:
            rest.callback(self._finish, end)
            self.communicator.close(grace)

    def _finish(self, end: float) -> None:
        with self._order:
            thread, self._thread = self._thread, None
        self._begun.put(None)
        # In a callback, this may be the comparing thread itself.
        is_other = thread is not threading.current_thread()
        if thread is not None and is_other:
            thread.join(max(0.0, end - time.monotonic()))
        is_waiting = thread is not None and is_other and thread.is_alive()
        try:
            # Ranks of other hosts may still have to read the last hashes.
            rest = max(0.0, end - time.monotonic())
            self._beside.close(0.0 if is_waiting else rest)
        finally:
            if thread is not None and is_other:
                thread.join(_LAST_WORD)  # by now everything that it waits for fails

    def _begin(self, call: Call, content: Content) -> CheckedWork:
        with self._order:
            work = self.communicator.submit(replace(call, async_op=True))
            assert work is not None, "an asynchronous operation returns a Work"
            self._count(call)
            self._num_checks += 1
            where = "".join(
                f" ({place})" for place in source_lines(sys._getframe())[:1]
            )
            subject = f"{call.op} #{self._num_collectives} on {self._title}{where}"
            check = _Check(call, content, self._num_checks, subject, work)
            self._begun.put(check)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._compare_all, name="allhands compares", daemon=True
                )
                self._thread.start()
        return CheckedWork(check)

    def _count(self, call: Call) -> None:
        """Count as the communicator that carries out the call does."""
        carrier = self.communicator
        while isinstance(carrier, FrontCommunicator):
            carrier = carrier.communicator
        is_one = isinstance(carrier, NativeCommunicator)
        self._num_collectives += 1 if is_one else len(call.singles() or [call])

    def _compare_all(self) -> None:
        while (check := self._begun.get()) is not None:
            try:
                error = self._compared(check)
            except BaseException as failed:  # the waiting caller gets it
                error = failed
            try:
                check.ended.set_result(error)
            except BaseException:  # of a callback; go on comparing
                sys.unraisablehook(_unraisable(check))
            del check  # with its arrays, before the next one comes

    def _compared(self, check: _Check) -> BaseException | None:
        """Return the error of the operation or its comparison, or None."""
        try:
            check.work.wait_for(None)
            hashes = [check.number, *check.content.hashes()]
        except (CollectiveMismatchError, RankFailedError) as error:
            return error  # the other ranks get one, too
        except BaseException as error:
            self._beside.abort(f"{check.subject} failed: {error}")
            return error
        table = np.empty(self._size * len(hashes), np.uint64)
        row = np.array(hashes, np.uint64)
        try:
            self._beside.all_gather_single(table, row, check.call.timeout, False)
        except DistBackendError as error:
            return _retold(error, f"check of contents of {check.subject}: {error}")
        return _verdict(check, table.reshape(self._size, -1))


def _unraisable(check: _Check) -> Any:
    kind, value, traceback = sys.exc_info()
    return SimpleNamespace(
        exc_type=kind,
        exc_value=value,
        exc_traceback=traceback,
        err_msg=f"Exception ignored in a callback of {check.subject}",
        object=None,
    )


def _is_compared(call: Call) -> bool:
    return call.op in COMPARED and call.singles() != [] and call.device() == "cpu"


def _verdict(check: _Check, table: np.ndarray[Any, Any]) -> DistBackendError | None:
    numbers = table[:, 0].tolist()
    if len({*numbers}) > 1:
        return DistBackendError(
            f"check of contents of {check.subject}: by rank it is number {numbers} of "
            f"those compared: some went on where an operation had failed; destroy the "
            f"group and make it anew"
        )
    difference = compare(check.call.op, table[:, 1:])
    if difference is None:
        return None
    error = ContentMismatchError(
        f"{check.subject}: what must be the same on all ranks is not: "
        f"{difference.text}; odd: {in_ranges(difference.ranks)}; {_REMEDY}"
    )
    error.ranks = difference.ranks
    return error


def _retold(error: DistBackendError, text: str) -> DistBackendError:
    told = type(error)(text)
    if hasattr(error, "ranks"):
        told.ranks = error.ranks  # type: ignore[attr-defined]
    told.__cause__ = error.__cause__
    return told
