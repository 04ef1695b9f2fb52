"""PolledCommunicator: a group whose operations another library carries out.

The library's non-blocking operations do the work, as requests that are tested for their
end (see `polled_work`). The library cannot say at which operation a rank is, which rank
has left, or that the group is broken. The world's store carries this information.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from allhands.backends.call import Call
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.news import GroupNews
from allhands.backends.polled_work import (
    Subject,
    UnderWay,
    abandon_memory,
)
from allhands.backends.work import Work
from allhands.errors import CollectiveTimeoutError, DistBackendError, DistError
from allhands.options import to_seconds
from allhands.store import Store

__all__ = [
    *("COLLECTIVES", "FIRST_OWN_TAG", "PolledCommunicator", "refuse_options"),
]

FIRST_OWN_TAG = 1 << 31
"""The first of the tags that no program can use."""

COLLECTIVES = (
    *("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single", "broadcast"),
    *("all_gather", "all_gather_single", "gather", "gather_single", "scatter"),
    *("all_to_all", "all_to_all_single", "scan", "exscan", "barrier"),
)
# Errors of this package and of arguments, whatever the library's own errors are. With
# these the library has begun nothing.
_REFUSALS = (DistError, NotImplementedError, TypeError, ValueError)


def refuse_options(name: str, pg_options: Any) -> None:
    """Raise TypeError if there are options; such backends take none."""
    if pg_options is not None:
        raise TypeError(f"backend {name!r} takes no pg_options, got {pg_options!r}")


class PolledCommunicator(Communicator):
    """One rank's end of a group; thread-safe.

    The subclass for a library defines how operations begin (`_prepared`), and `_free`,
    `library_error` and `library_failed`.
    """

    library_error: type[Exception]
    """The exception that the library raises."""
    most_left_alone = 64
    """Operations without a waiter; beyond it, starting another tests them all."""

    def __init__(
        self,
        store: Store,
        options: CommunicatorOptions,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.lock = lock or threading.RLock()
        """Held while the library is called; reentrant, for signal handlers."""
        self.rank, self.size = options.group_rank, options.group_size
        self.title = f"rank {self.rank} (this process) of group {options.group_id!r}"
        self.failure: DistBackendError | None = None
        self._news = GroupNews(store, options)
        self.set_timeout(options.timeout)
        self._num_collectives = 0
        self._has_left = False
        self._pending: dict[UnderWay, None] = {}
        """The operations under way, in the order in which they began."""

    @abstractmethod
    def library_failed(self, subject: Subject, error: Exception) -> DistBackendError:
        """Return the error for an error of the library, with its text."""

    @abstractmethod
    def _prepared(self, call: Call) -> Callable[[Call, float], UnderWay] | None:
        """Return what lets the library begin `call` within a limit in seconds.

        It raises if an argument is wrong. None: there is no such operation.
        """

    @abstractmethod
    def _free(self, is_whole: bool) -> None:
        """Give the library's group back, if no operation of it is under way."""

    def submit(self, call: Call) -> Work | None:
        """See `Communicator.submit`."""
        start = self._prepared(call)
        if start is None:
            return super().submit(call)
        limit = self._limit if call.timeout is None else to_seconds(call.timeout)
        with self.lock:
            self._check_whole(call.op)
            work = self._started(start, call, limit)
            if len(self._pending) > self.most_left_alone:
                self._advance_all()
        if not call.async_op:
            self._finish(work)
        return work if call.returns_work else None

    def set_timeout(self, timeout: timedelta) -> None:
        """See `Communicator.set_timeout`."""
        self._timeout, self._limit = timeout, to_seconds(timeout)

    def abort(self, reason: str) -> None:
        """See `Communicator.abort`."""
        self._break(DistBackendError(f"{self.title}: the group was aborted: {reason}"))
        self._news.tell_abort(reason)

    def note_failure(self, reason: str, cause: str) -> None:
        """See `Communicator.note_failure`."""
        self._news.reason, self._news.cause = reason, cause

    def close(self, grace: float) -> None:
        """See `Communicator.close`."""
        if self._has_left:
            return
        self._has_left = True
        unsent = self._drain(grace if self.failure is None else 0.0)
        left = DistBackendError(f"{self.title} has left the group")
        is_whole = self.failure is None and not self._pending
        self.failure = self.failure or left
        with self.lock:
            pending = list(self._pending)
        for work in pending:
            work.fail(left)
        self._news.tell_left(self._num_collectives)
        self._free(is_whole)
        if unsent:
            raise CollectiveTimeoutError(
                f"{self.title} left after {grace:g} s, but peers have not received: "
                f"{', '.join(map(str, unsent))}"
            )

    def pause(self, requests: list[Any], pauses: Iterator[None]) -> None:
        """See `PolledGroup.pause`."""
        next(pauses)

    def look(self, subject: Subject) -> DistBackendError | None:
        """See `PolledGroup.look`."""
        return self._news.look(self.title, subject)

    def known(self, subject: Subject) -> tuple[str, list[int]]:
        """See `PolledGroup.known`."""
        return self._news.known(subject)

    def forget(self, work: UnderWay) -> None:
        """See `PolledGroup.forget`."""
        self._pending.pop(work, None)

    def note_failed(self, subject: Subject, error: DistBackendError) -> None:
        """See `PolledGroup.note_failed`: a failed collective breaks the group."""
        if subject.sequence:
            self._break(error)

    def _started(
        self, start: Callable[[Call, float], UnderWay], call: Call, limit: float
    ) -> Any:
        """Run `start`; keep the operation until it has ended, whoever else holds it."""
        try:
            work = start(call, limit)
            self._pending[work] = None
            return work
        except BaseException as error:
            self._note_interrupted(error, call.op, call.peer)
            raise

    def _note_interrupted(
        self,
        error: BaseException,
        op: str,
        peer: int | None = None,
        breaks: bool = False,
    ) -> None:
        """Handle `error`, which came while the library began an operation.

        `breaks` says that an error of the library breaks the group.

        Raises:
            DistBackendError: it is the library's own.
        """
        if isinstance(error, _REFUSALS):
            return
        sequence = self._num_collectives if op in COLLECTIVES else 0
        subject = Subject(op, sequence, peer)
        if isinstance(error, self.library_error):
            failure = self.library_failed(subject, error)
            if breaks:
                self.note_failed(subject, failure)
            raise failure from error
        abandon_memory(error)  # Ctrl-C: the library may have begun
        self._abort_interrupted(subject, error)

    def _abort_interrupted(self, subject: Subject, error: BaseException) -> str:
        """Break the group for the others; return the reason, for this rank."""
        reason = f"{subject} was interrupted by {type(error).__name__}"
        self.abort(f"{self.title}: {reason}")
        return reason

    def _break(self, error: DistBackendError) -> None:
        if self.failure is None:
            self.failure = _retold(
                error, f"{self.title}: the group is broken since: {error}"
            )

    def _check_whole(self, op: str) -> None:
        if self.failure is not None:
            error = _retold(self.failure, f"{op}: {self.failure}")
            raise error from error.__cause__

    def _finish(self, work: Any) -> None:
        try:
            work.wait_for(None)
        except DistBackendError:
            raise
        except BaseException as error:  # Ctrl-C
            work.fail(DistBackendError(self._abort_interrupted(work.subject, error)))
            raise

    def _advance_all(self) -> bool:
        """Let the library progress all operations; return whether some are left."""
        with self.lock:
            pending = list(self._pending)
        return not all([work.advance() for work in pending])

    def _drain(self, grace: float) -> list[Subject]:
        """Wait up to `grace` seconds for all operations; return sends left over."""
        end = time.monotonic() + grace
        while self._advance_all() and time.monotonic() < end:
            time.sleep(0.0002)
        return [work.subject for work in self._pending if work.subject.op == "send"]


def _retold(error: DistBackendError, text: str) -> DistBackendError:
    """Return the same error with another text."""
    retold = type(error)(text)
    retold.__dict__.update(error.__dict__)  # such as its ranks
    retold.__cause__ = error.__cause__
    return retold
