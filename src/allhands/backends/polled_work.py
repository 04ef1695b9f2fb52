"""PolledWork: an operation of another library, as requests tested for their end.

MPI moves data only while it is called. So a thread that waits for an operation tests it
repeatedly. If a program wants to be told of the end of an operation for which no thread
waits, a thread of the package does the same. Between two tests the thread checks time
limits, Ctrl-C and bad news of other ranks, which the library's own waits would ignore.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from allhands.backends.work import Work
from allhands.errors import CollectiveTimeoutError, DistBackendError
from allhands.options import to_seconds

__all__ = [
    *("Begun", "PolledGroup", "PolledReceive", "PolledWork", "Subject"),
    "UnderWay",
    "abandon_memory",
]

_FIRST_LOOK = 0.25
_LONGEST_PAUSE_OF_LOOKS = 2.0
"""Seconds until a wait first asks for bad news, and the longest pause afterwards."""


class Begun(NamedTuple):
    """An operation that the library has begun."""

    requests: list[Any]
    end: Callable[[], None]
    """The step of this rank after the data has come. It may be called again."""
    memory: Any
    """Kept alive until then."""


class Subject(NamedTuple):
    """Names an operation."""

    op: str
    sequence: int = 0
    """A collective's number in its group; 0 for a message."""
    peer: int | None = None
    """The peer of a message; None means any."""
    more: str = ""

    def __str__(self) -> str:
        number = f" #{self.sequence}" if self.sequence else ""
        return f"{self.op}{number}{self.more}"


class UnderWay(Protocol):
    """An operation that has not ended, as its group sees it."""

    @property
    def subject(self) -> Subject:
        """How errors name it."""

    def advance(self) -> bool:
        """Progress it; return whether it ended. Never waits."""

    def fail(self, error: DistBackendError) -> None:
        """End it now with `error`, unless it has ended."""


class PolledGroup(Protocol):
    """The methods of a group that a Work needs."""

    lock: AbstractContextManager[Any]
    title: str
    """Names this rank and its group: "rank 1 (this process) of group '0'"."""
    failure: DistBackendError | None
    """The error that broke the group."""

    @property
    def library_error(self) -> type[Exception]:
        """The exception that the library raises."""

    def library_failed(self, subject: Subject, error: Exception) -> DistBackendError:
        """Return the error for an error of the library, with its text."""

    def look(self, subject: Subject) -> DistBackendError | None:
        """Return why the operation will never end, if this is known."""

    def known(self, subject: Subject) -> tuple[str, list[int]]:
        """Return what is known of the ranks that it waits for, and these ranks."""

    def note_failed(self, subject: Subject, error: DistBackendError) -> None:
        """Note that the operation failed."""

    def forget(self, work: UnderWay) -> None:
        """Note that the operation has ended."""

    def pause(self, requests: list[Any], pauses: Iterator[None]) -> None:
        """Pause before `requests` are tested again; `pauses` gives the length."""


class PolledWork(Work):
    """An operation under way; any thread may use it."""

    def __init__(
        self,
        group: PolledGroup,
        subject: Subject,
        begun: Begun,
        limit: float,
        outputs: list[Any],
    ) -> None:
        super().__init__(outputs)
        self.subject = subject
        self._group = group
        self._begun = begun
        self._limit = limit
        self._start = time.monotonic()
        self._look_at = self._start + _FIRST_LOOK
        self._is_ended = False
        self._error: DistBackendError | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def timeout(self) -> timedelta:
        """See `Work.timeout`."""
        return timedelta(seconds=self._limit)

    def wait_for(self, timeout: timedelta | None) -> None:
        """See `Work.wait_for`."""
        seconds = None if timeout is None else to_seconds(timeout)
        start = time.monotonic()
        pauses = _pauses()
        while not self.advance():
            if seconds is not None and time.monotonic() - start >= seconds:
                raise CollectiveTimeoutError(
                    f"Work.wait timed out: {self._group.title} waited {seconds:g} s "
                    f"for {self.subject}, which goes on until its own limit of "
                    f"{self._limit:g} s is over"
                )
            self._group.pause(self._begun.requests, pauses)
        if self._error is not None:
            raise self._error

    def is_completed(self) -> bool:
        """See `Work.is_completed`."""
        return self.advance()

    def exception(self) -> BaseException | None:
        """See `Work.exception`."""
        return self._error

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """See `Work.add_done_callback`."""
        with self._group.lock:
            is_late = self._is_ended
            if not is_late:
                self._callbacks.append(callback)
        if is_late:
            callback()
        else:
            _watch(self)

    def advance(self) -> bool:
        """Progress the operation; return whether it ended. Never waits."""
        if self._is_ended and not self._callbacks:
            return True
        with self._group.lock:
            if not self._is_ended:
                self._ask()
            if not self._is_ended:
                return False
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return True

    def fail(self, error: DistBackendError) -> None:
        """End the operation now with `error`, unless it has ended."""
        with self._group.lock:
            if not self._is_ended:
                self._give_up(error)
        self.advance()

    def _ask(self) -> None:
        """Test whether the operation has ended, or must be given up."""
        try:
            is_over = self._is_over()
        except self._group.library_error as its_error:
            error = self._group.library_failed(self.subject, its_error)
            self._group.note_failed(self.subject, error)
            self._give_up(error)  # it need not have ended for the library
            return
        if is_over:
            self._settle(self._finish())
            return
        reason = self._reason_to_fail()
        if reason is not None:
            self._group.note_failed(self.subject, reason)
            self._give_up(reason)

    def _is_over(self) -> bool:
        return all([request.Test() for request in self._begun.requests])

    def _finish(self) -> DistBackendError | None:
        self._begun.end()
        return None

    def _reason_to_fail(self) -> DistBackendError | None:
        now = time.monotonic()
        if self._group.failure is not None:
            return self._group.failure
        if now - self._start >= self._limit:
            return self._timed_out()
        if now < self._look_at:
            return None
        self._look_at = now + min(now - self._start, _LONGEST_PAUSE_OF_LOOKS)
        return self._group.look(self.subject)

    def _timed_out(self) -> DistBackendError:
        known, missing = self._group.known(self.subject)
        error = CollectiveTimeoutError(
            f"{self.subject} timed out: {self._group.title} waited {self._limit:g} s "
            f"(its timeout); {known}"
        )
        error.ranks = missing
        return error

    def _give_up(self, error: DistBackendError) -> None:
        """Keep its memory for good: no library can be told to stop using it."""
        _abandoned.append(self._begun)
        self._settle(error)

    def _settle(self, error: DistBackendError | None) -> None:
        self._error = error
        self._begun = _NOTHING
        self._is_ended = True
        self._group.forget(self)


class PolledReceive(PolledWork):
    """A receive, which knows its sender: its only request then has the `source`."""

    _source = -1

    def source_rank(self) -> int:
        """See `Work.source_rank`."""
        if self._source < 0:
            raise RuntimeError("source_rank(): nothing has come yet; call wait() first")
        return self._source

    def _is_over(self) -> bool:
        [request] = self._begun.requests
        is_over: bool = request.Test()
        if is_over:
            self._source = request.source
        return is_over


_NOTHING = Begun([], lambda: None, None)
_abandoned: list[Any] = []
_watched: set[PolledWork] = set()
_watching = threading.Lock()


def abandon_memory(error: BaseException) -> None:
    """Keep the locals of all frames that `error` ended: the library may write there."""
    frames = traceback.walk_tb(error.__traceback__)
    _abandoned.append([dict(frame.f_locals) for frame, _ in frames])


def _pauses() -> Iterator[None]:
    """Yield between growing pauses; at first none, so that short waits end soon."""
    for _ in range(100):
        yield
    for _ in range(2000):
        os.sched_yield()
        yield
    pause = 0.00002
    while True:
        time.sleep(pause)
        pause = min(pause * 1.2, 0.002)
        yield


def _watch(work: PolledWork) -> None:
    """Let a thread test for the end of `work`.

    Raises:
        RuntimeError: the system allows no thread; then no thread tests it.
    """
    with _watching:
        is_first = not _watched
        _watched.add(work)
        if not is_first:
            return
        try:
            threading.Thread(
                target=_advance_watched, name="allhands waits", daemon=True
            ).start()
        except BaseException:  # also Ctrl-C
            _watched.clear()
            raise


def _advance_watched() -> None:
    pauses = _pauses()
    while True:
        with _watching:
            works = list(_watched)
        ended = {work for work in works if work.advance()}
        with _watching:
            _watched.difference_update(ended)
            if not _watched:
                return
        if ended:
            pauses = _pauses()
        next(pauses)


def _forget_after_fork() -> None:
    """A forked child has neither the library nor this thread: start anew."""
    global _watching
    _watching = threading.Lock()
    _watched.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
