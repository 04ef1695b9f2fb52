"""Tracer: writes all operations of a rank while it runs, if ALLHANDS_TRACE is set.

The flight recorder, which is always on, keeps the last operations of each group. A
thread reads them every tenth of a second, or less often to keep to its share of a CPU.
So no operation waits for it, and the file has the operations of a rank until shortly
before its death. Operations that come too fast are lost and counted.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from allhands import settings
from allhands.debug.trace_log import TraceLog
from allhands.groups.visible_group import VisibleGroup
from allhands.groups.world import World, current
from allhands.groups.world_listeners import (
    when_a_group_has_ended,
    when_the_ranks_have_met,
)
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.roster import Roster

__all__ = ["trace_if_asked"]

_LEAST_PAUSE = 0.1  # seconds
_SHARE = 0.02  # of a CPU, the most that it takes


class _Reading:
    """How far one kind of operations of a group has been written."""

    def __init__(self, is_message: bool, num_slots: int) -> None:
        self._is_message = is_message
        self._num_slots = num_slots  # of the recorder
        self._last = 0
        """All operations up to here have been seen, or are open."""
        self._open: dict[int, dict[str, Any] | None] = {}
        """Operations that have not ended, as written; None if not written or seen."""

    @property
    def after(self) -> int:
        """All operations up to this number are written completely."""
        return min(self._open) - 1 if self._open else self._last

    def news(self, entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the lines to write for these entries."""
        there = {
            told["sequence"]: told
            for told in entries
            if told["is_message"] == self._is_message
        }
        before, self._open = self._open, {}
        num_lost = 0
        for number, written in before.items():
            if number in there:
                yield from self._news_of(number, there[number], written)
            elif written is not None:  # it has ended since, and was overwritten
                yield {**written, "state": "ended"}
            else:
                num_lost += 1
        new = sorted(number for number in there if number > self._last)
        for number in new:
            yield from self._news_of(number, there[number], None)
        if new:
            begun = [n for n in there if there[n]["state"] != "scheduled"]
            # All others up to here have been overwritten.
            gone = max(self._last, max(begun, default=0) - self._num_slots)
            num_lost += gone - self._last - sum(number <= gone for number in new)
            for number in range(gone + 1, new[-1]):
                if number not in there:
                    self._open[number] = None  # it may be being written now
            self._last = new[-1]
        if num_lost:
            yield {"lost": num_lost}

    def _news_of(
        self, number: int, told: dict[str, Any], written: dict[str, Any] | None
    ) -> Iterator[dict[str, Any]]:
        if told["state"] in ("completed", "failed"):
            yield told
        elif told["state"] == "started":
            self._open[number] = told
            if written is None:
                yield told
        else:
            self._open[number] = None


class _Tracer:
    """See the module; one per process.

    A signal's handler may end groups, and the world, while this thread holds the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._log: TraceLog | None = None
        self._rank = -1
        self._readings: dict[str, tuple[_Reading, _Reading]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def forget(self) -> None:
        """Reset a forked child, which writes nothing and has no such thread."""
        if self._log is not None:
            self._log.close()
        self.__init__()  # type: ignore[misc]  # the lock may have been taken, too

    def begin(self, roster: Roster, rank: int) -> None:
        """Write from now on, if the setting names a folder."""
        folder = settings.trace.get()
        if not folder:
            return
        if settings.record_length.get() == 0:
            _say(rank, folder, f"{settings.record_length.name}=0 keeps no operation")
            return
        head = {
            "world": roster.token_for("trace").hex()[:16],  # a digest, not a secret
            "rank": rank,
            "world_size": len(roster.identities),
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        try:
            log = TraceLog(folder, head)
        except OSError as error:
            _say(rank, folder, error.strerror or str(error))
            return
        with self._lock:
            self._finish()  # of a world that was never completed
        self._join()
        self._log, self._readings, self._rank = log, {}, rank
        self._stop = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(self._stop,), name="allhands trace", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no thread is left
            with self._lock:
                self._finish()
            _say(rank, folder, str(error))
            return
        self._thread = thread

    def _run(self, stop: threading.Event) -> None:
        pause = _LEAST_PAUSE
        world = current()
        while not stop.wait(pause):
            began = time.thread_time()
            for group in world.visible_groups():
                self._take_unless_ended(world, group, stop)
            took = time.thread_time() - began
            pause = max(_LEAST_PAUSE, took / _SHARE)

    def _take_unless_ended(
        self, world: World, group: VisibleGroup, stop: threading.Event
    ) -> None:
        # Who has the lock may wait for the end of this thread.
        while not self._lock.acquire(timeout=_LEAST_PAUSE):
            if stop.is_set():
                return
        try:
            if world.is_visible(group):  # otherwise `end` has taken the rest
                self._take(group)
        finally:
            self._lock.release()

    def _take(self, group: VisibleGroup) -> None:
        """Write the news of `group`. The caller holds the lock."""
        log = self._log
        if log is None:
            return
        name, lines = group.group_name, list[dict[str, Any]]()
        if name not in self._readings:
            # Like the recorder, it rounds up to a power of two.
            num_slots = 1 << (settings.record_length.get() - 1).bit_length()
            self._readings[name] = (
                _Reading(False, num_slots),
                _Reading(True, num_slots),
            )
            ranks = list(group.global_ranks)
            lines.append({"group": name, "desc": group.group_desc, "ranks": ranks})
        collectives, messages = self._readings[name]
        after = collectives.after, messages.after
        entries = group.communicator.flight_entries(*after)
        for reading in (collectives, messages):
            lines += [{"group": name, **told} for told in reading.news(entries)]
        try:
            log.add(lines)
        except OSError as error:
            if self._log is log:  # no handler has closed it meanwhile
                _say(self._rank, log.path, error.strerror or str(error))
                self._finish()

    def _finish(self) -> None:
        """Stop writing."""
        self._stop.set()
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def _join(self) -> None:
        """Wait until the thread has ended.

        The thread must not be in the core when the interpreter ends: the interpreter
        would end the thread there, and thus the process.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def end(self, group: VisibleGroup) -> None:
        """Write the rest of `group`, which is shut down; the world comes last."""
        with self._lock:
            self._take(group)
            self._take(group)  # entries missing the first time are lost
            self._readings.pop(group.group_name, None)
            if group.is_world:
                self._finish()
        if group.is_world:
            self._join()


def _say(rank: int, path: str, problem: str) -> None:
    text = (
        f"rank {rank} writes no trace from here on, and goes on without: "
        f"{settings.trace.name}: {path}: {problem}"
    )
    say(LogLevel.ERROR, "trace", rank, text)


_tracer = _Tracer()


def trace_if_asked() -> None:
    """Trace the worlds of this process if the setting asks for it."""
    when_the_ranks_have_met(_tracer.begin)
    when_a_group_has_ended(_tracer.end)
    os.register_at_fork(after_in_child=_tracer.forget)
