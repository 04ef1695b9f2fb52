"""Reporter: writes a rank's record to the places where others look for it.

On SIGUSR2 it writes the record where `allhands debug` finds it. If ALLHANDS_DUMPS names
a folder, it also writes the record there: on SIGUSR2, when an operation fails, and when
an exception ends the program.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from allhands import settings
from allhands.backends import failures, flight_memory
from allhands.debug.dumps import Dump
from allhands.debug.explanation import (
    explanation,
    explanation_of,
    is_of_a_collective,
    is_worth_asking,
    teller_of,
)
from allhands.debug.given_up import GivenUp
from allhands.debug.record import told_now, write
from allhands.elastic.record_memory import Mark, RecordMemory, has_handler
from allhands.errors import CollectiveTimeoutError, DistBackendError
from allhands.groups.world import World, current
from allhands.groups.world_listeners import when_the_ranks_have_met, when_this_is_a_rank
from allhands.rendezvous.identity import Identity
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.roster import Roster

__all__ = ["answer_already", "listen"]

_LEAST_PAUSE = 1.0  # seconds between two automatic records


class _Reporter:
    """See the module; one per process."""

    def __init__(self) -> None:
        self._memory: RecordMemory | None = None
        self._is_asked = False
        self._answering = threading.Lock()
        self._last_failure: weakref.ref[BaseException] | None = None
        self._last_time = float("-inf")
        # A rank that waits for this one may give up and ask while this rank's main
        # thread, which then answers, gives up itself.
        self._giving_up: CollectiveTimeoutError | None = None
        self._gave_up: tuple[float, dict[str, Any]] | None = None

    def on_failure(self, error: BaseException, traceback: TracebackType | None) -> None:
        """Report `error` and its reason."""
        if isinstance(error, CollectiveTimeoutError) and traceback is None:
            is_main = threading.current_thread() is threading.main_thread()
            self._giving_up = error if is_main else None
            text = str(error)
            try:
                self._explain(error)
            except Exception as failure:  # the error itself must be told in any case
                if str(error) == text:  # it has no reason yet
                    _add_reason(error, f"why: unknown, for looking failed: {failure!r}")
            finally:
                self._giving_up = None
        self._record(error, traceback)

    def _explain(self, error: CollectiveTimeoutError) -> None:
        """Add to the text of `error`, a wait that took too long, the reason for it."""
        world, (name, teller) = current(), teller_of(error)
        group = next((g for g in world.visible_groups() if g.group_name == name), None)
        roster = world.known_roster
        if self._memory is None or roster is None or group is None:
            return
        if not is_worth_asking(error):
            return
        processes = roster.identities
        given_up = _given_up(world, processes)
        if teller != group.rank():
            process = processes[group.global_rank(teller)]
            why = explanation_of(process, name, group.size(), given_up)
            _add_reason(error, why)
            return
        told = told_now(world, "failure", error, most=1)
        self._gave_up = time.monotonic(), told["error"]
        if given_up is not None:
            given_up.tell(told)
        self._show(told)  # ranks that waited with it await the reason
        communicator = group.communicator
        why = explanation(
            Dump.of(told),
            processes,
            given_up,
            lambda: {
                group.global_rank(r): t for r, t in communicator.endings().items()
            },
        )
        told["error"]["why"] = why
        _add_reason(error, why)
        self._show(told)  # they need not ask again
        if given_up is not None and is_of_a_collective(error):
            given_up.tell_reason(name, why)

    def _show(self, told: dict[str, Any]) -> None:
        """Put the record of this rank, which gives up, where others look for it."""
        if self._memory is not None and self._answering.acquire(blocking=False):
            try:
                with suppress(OSError):  # no memory: they look in vain
                    self._memory.write(json.dumps(told))
            finally:
                self._answering.release()
                self._answer_if_asked(None)

    def _record(self, error: BaseException, traceback: TracebackType | None) -> None:
        """Write the state at `error`; of several in a row only the first."""
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
        # Its traceback holds the arrays of all calls below. Only Python's own classes
        # cannot be referenced weakly, and an error of these ends the program.
        self._last_failure = weakref.ref(error) if is_of_a_group else None
        self._last_time = now
        reason = "failure" if traceback is None else "exception"
        _write(told_now(current(), reason, error, traceback), folder)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Write the current state."""
        self._is_asked = True
        self._answer_if_asked(frame)

    def _answer_if_asked(self, interrupted: FrameType | None) -> None:
        """Answer, and again if the signal has come meanwhile.

        Who asked then may have seen the answer before, and waits for a newer one.
        """
        while self._is_asked and self._answering.acquire(blocking=False):
            try:
                self._is_asked = False
                # Whatever happens, the interrupted program continues.
                with suppress(Exception):
                    self._answer(self._told(interrupted))
            finally:
                self._answering.release()

    def _told(self, interrupted: FrameType | None) -> dict[str, Any]:
        """Return the current state, with a wait that this rank gives or gave up."""
        # Who asks a rank that gives up waits itself: the last operations suffice.
        most = None if self._giving_up is None else 1
        told = told_now(current(), "signal", self._giving_up, None, interrupted, most)
        since, error = self._gave_up or (float("-inf"), None)
        if told["error"] is None and time.monotonic() < since + _LEAST_PAUSE:
            told["error"] = error
        return told

    def _answer(self, told: dict[str, Any]) -> None:
        if self._memory is not None:
            with suppress(OSError):  # the folder may have space
                self._memory.write(json.dumps(told))
        folder = settings.dumps.get()
        if not folder:
            return
        path = _path_in(folder, told)
        if time.monotonic() < self._last_time + _LEAST_PAUSE and os.path.exists(path):
            # A recent failure says more than later states. It is the answer, and its
            # new time shows a waiting reader that it has come.
            os.utime(path)
        else:
            _write(told, folder)

    def answer(self) -> None:
        """Answer SIGUSR2 from now on, unless the program has its own handler."""
        # Python does not know of other handlers, such as that of faulthandler.
        is_free = signal.getsignal(
            signal.SIGUSR2
        ) is signal.SIG_DFL and not has_handler(os.getpid(), signal.SIGUSR2)
        is_main = threading.current_thread() is threading.main_thread()
        if is_free and is_main:
            with suppress(OSError):  # no descriptor is left: nobody can ask
                self._memory = RecordMemory()
                signal.signal(signal.SIGUSR2, self.on_signal)

    def tell_world(self, roster: Roster, rank: int) -> None:
        """Publish the world and rank, so that tools find the host's other ranks."""
        watched = flight_memory.here()
        if watched is not None:
            size = len(roster.identities)
            watched.mark(roster.mark, rank, size, socket.gethostname())
        if self._memory is not None:
            with suppress(OSError):  # no descriptor is left: it is found alone
                self._memory.mark(Mark(roster.mark, rank))

    def ignore(self) -> None:
        """Answer no more in a process that ends.

        When Python ends, it takes its handlers back, and SIGUSR2 would kill the rank.
        """
        if signal.getsignal(signal.SIGUSR2) == self.on_signal:
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    def answer_no_more(self) -> None:
        """Reset a forked child, which is no rank unless it becomes one."""
        self._is_asked = False
        self._answering = threading.Lock()  # another thread of the parent may hold it
        if self._memory is not None:
            self._memory.close()
            self._memory = None
            if signal.getsignal(signal.SIGUSR2) == self.on_signal:
                signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def _add_reason(error: BaseException, why: str) -> None:
    if why:
        head, *rest = error.args
        error.args = (f"{head}; {why}", *rest)


def _given_up(world: World, processes: Sequence[Identity]) -> GivenUp | None:
    """Return what ranks of other hosts write and read; None if there is no such rank.

    The ranks of another maker's world have no store of ours.
    """
    hosts = {process.host for process in processes}
    return GivenUp(world.store) if world.default and len(hosts) > 1 else None


def _write(told: dict[str, Any], folder: str) -> None:
    """Write a record into the folder, which is made if necessary, or say why not."""
    try:
        os.makedirs(folder, exist_ok=True)
        write(told, _path_in(folder, told))
    except OSError as error:
        name = settings.dumps.name
        text = f"rank {told['rank']} has no record: {name}: {folder}: {error.strerror}"
        say(LogLevel.ERROR, "records", told["rank"], text)


def _path_in(folder: str, told: dict[str, Any]) -> str:
    """Return the path of a record in the folder."""
    return os.path.join(folder, f"rank_{told['rank']}.json")


def _causes(error: BaseException | None) -> list[BaseException]:
    """Return `error` and the errors that caused it."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


_reporter = _Reporter()


def listen() -> None:
    """Report failures and signals of this process from now on."""
    failures.set_listener(_reporter.on_failure)
    answer_already()
    when_this_is_a_rank(_reporter.answer)
    when_the_ranks_have_met(_reporter.tell_world)
    atexit.register(_reporter.ignore)
    os.register_at_fork(after_in_child=_reporter.answer_no_more)


def answer_already() -> None:
    """Answer before this process is a rank, if its rank and the folder are known."""
    # The launcher also has the setting if its user has set it.
    if settings.dumps.get() and "RANK" in os.environ:
        _reporter.answer()
