"""Reporter: has a rank's record where others look for it, when there is reason to.

On SIGUSR2 it is put where `allhands debug` finds it. With a folder in ALLHANDS_DUMPS it
is written there, too: then, when an operation fails, and when an exception ends the
program.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import weakref
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from allhands import settings
from allhands.backends import failures, flight_memory
from allhands.debug.dumps import Dump
from allhands.debug.explanation import (
    explanation,
    explanation_of,
    is_worth_asking,
    teller_of,
)
from allhands.debug.record import told_now, write
from allhands.elastic.record_memory import Mark, RecordMemory, has_handler
from allhands.errors import CollectiveTimeoutError, DistBackendError
from allhands.groups.world import (
    current,
    when_the_ranks_have_met,
    when_this_is_a_rank,
)
from allhands.rendezvous.roster import Roster

__all__ = ["answer_already", "listen"]

_LEAST_PAUSE = 1.0  # seconds between two that are written by themselves


class _Reporter:
    """See the module; one per process."""

    def __init__(self) -> None:
        self._memory: RecordMemory | None = None
        self._is_answering = False
        self._last_failure: weakref.ref[BaseException] | None = None
        self._last_time = float("-inf")
        # Who waits for this rank may give up and ask it while its main thread, which
        # then answers, does so itself.
        self._giving_up: CollectiveTimeoutError | None = None
        self._gave_up: tuple[float, dict[str, Any]] | None = None

    def on_failure(self, error: BaseException, traceback: TracebackType | None) -> None:
        """See to it that people learn of `error`, and why it came."""
        if isinstance(error, CollectiveTimeoutError) and traceback is None:
            is_main = threading.current_thread() is threading.main_thread()
            self._giving_up = error if is_main else None
            try:
                with suppress(Exception):  # the rest is to be told in any case
                    self._explain(error)
            finally:
                self._giving_up = None
        self._record(error, traceback)

    def _explain(self, error: CollectiveTimeoutError) -> None:
        """Have the text of `error`, a wait that took too long, say why it did."""
        world, (name, teller) = current(), teller_of(error)
        group = next((g for g in world.visible_groups() if g.group_name == name), None)
        roster = world.known_roster
        if self._memory is None or roster is None or group is None:
            return
        if not is_worth_asking(error):
            return
        processes = roster.identities
        if teller != group.rank():
            process = processes[group.global_rank(teller)]
            _add_reason(error, explanation_of(process, name, group.size()))
            return
        told = told_now(world, "failure", error, most=1)
        self._gave_up = time.monotonic(), told["error"]
        why = told["error"]["why"] = explanation(Dump.of(told), processes)
        _add_reason(error, why)
        # Those who waited with it need not ask again.
        self._is_answering = True
        try:
            self._memory.write(json.dumps(told))
        finally:
            self._is_answering = False

    def _record(self, error: BaseException, traceback: TracebackType | None) -> None:
        """Write what was when `error` came; of many in a row the first."""
        folder = settings.dumps.get()
        is_of_a_group = isinstance(error, DistBackendError)
        if not folder or (traceback is None and not is_of_a_group):
            return
        now = time.monotonic()
        last = self._last_failure() if self._last_failure is not None else None
        is_told = last is not None and any(last is cause for cause in _causes(error))
        is_soon = traceback is None and now < self._last_time + _LEAST_PAUSE
        if is_told or is_soon:
            return
        # Its traceback has the arrays of all calls on the way; only those of Python's
        # own classes cannot be held weakly, and of these one ends the program.
        self._last_failure = weakref.ref(error) if is_of_a_group else None
        self._last_time = now
        reason = "failure" if traceback is None else "exception"
        told = told_now(current(), reason, error, traceback)
        write(told, _path_in(folder, told))

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Write what is now."""
        if self._is_answering:
            return  # who asks now gets the same record
        self._is_answering = True
        try:
            # Whatever is wrong, the program that was interrupted goes on.
            with suppress(Exception):
                self._answer(self._told(frame))
        finally:
            self._is_answering = False

    def _told(self, interrupted: FrameType | None) -> dict[str, Any]:
        """What is now, or that this rank gives up a wait, or has just done so."""
        told = told_now(current(), "signal", self._giving_up, None, interrupted)
        since, error = self._gave_up or (float("-inf"), None)
        if told["error"] is None and time.monotonic() < since + _LEAST_PAUSE:
            told["error"] = error
        return told

    def _answer(self, told: dict[str, Any]) -> None:
        if self._memory is not None:
            with suppress(OSError):  # the folder may have room
                self._memory.write(json.dumps(told))
        folder = settings.dumps.get()
        if not folder:
            return
        path = _path_in(folder, told)
        if time.monotonic() < self._last_time + _LEAST_PAUSE and os.path.exists(path):
            # What failed just now says more of it than what comes next. It is the
            # answer, and who waits for one sees by its time that it has come.
            os.utime(path)
        else:
            write(told, path)

    def answer(self) -> None:
        """Answer SIGUSR2 from now on, unless the program has a handler of its own."""
        # Python does not know of handlers that are not its own, as faulthandler's.
        is_free = signal.getsignal(
            signal.SIGUSR2
        ) is signal.SIG_DFL and not has_handler(os.getpid(), signal.SIGUSR2)
        is_main = threading.current_thread() is threading.main_thread()
        if is_free and is_main:
            with suppress(OSError):  # no descriptor is left: nobody can ask
                self._memory = RecordMemory()
                signal.signal(signal.SIGUSR2, self.on_signal)

    def tell_world(self, roster: Roster, rank: int) -> None:
        """Let who finds this rank find the others of the host, and know which it is."""
        watched = flight_memory.here()
        if watched is not None:
            size = len(roster.identities)
            watched.mark(roster.mark, rank, size, socket.gethostname())
        if self._memory is not None:
            with suppress(OSError):  # no descriptor is left: it is found alone
                self._memory.mark(Mark(roster.mark, rank))

    def answer_no_more(self) -> None:
        """A forked child is no rank, unless it becomes one."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
            if signal.getsignal(signal.SIGUSR2) == self.on_signal:
                signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def _add_reason(error: BaseException, why: str) -> None:
    if why:
        head, *rest = error.args
        error.args = (f"{head}; {why}", *rest)


def _path_in(folder: str, told: dict[str, Any]) -> str:
    """Where a record goes; there is the folder then."""
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, f"rank_{told['rank']}.json")


def _causes(error: BaseException | None) -> list[BaseException]:
    """`error`, and those of which it came."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


_reporter = _Reporter()


def listen() -> None:
    """Have failures and signals of this process told, for as long as it lives."""
    failures.set_listener(_reporter.on_failure)
    answer_already()
    when_this_is_a_rank(_reporter.answer)
    when_the_ranks_have_met(_reporter.tell_world)
    os.register_at_fork(after_in_child=_reporter.answer_no_more)


def answer_already() -> None:
    """Answer before this begins to be a rank, where that and the folder are known."""
    # The launcher has the setting, too, where its user has set it.
    if settings.dumps.get() and "RANK" in os.environ:
        _reporter.answer()
