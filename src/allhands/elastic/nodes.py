"""The launchers of a job's other nodes: what happens there, and what they are told.

Node 0 serves the store. In it is a log, in which every launcher writes what the others
have to know, and a counter for each node by which its launcher shows that it lives.
Node 0 watches these, and writes in the log whom it has lost; the others find by their
own requests whether node 0 is there.

Two threads do this, so that the launcher's loop never waits for the network: one reads
the log, the other writes what is to be told, and the sign of life.
"""

from __future__ import annotations

import os
import queue
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from allhands.elastic.course import Course
from allhands.elastic.failure import signal_name
from allhands.elastic.log_entry import Kind, LogEntry
from allhands.elastic.node import NodeRoster
from allhands.elastic.signals import SignalPipe
from allhands.elastic.signs import BEAT, Watch, lost
from allhands.errors import DistNetworkError, DistStoreError
from allhands.store import Store

__all__ = ["Nodes"]

# Signs of life in the time after which a node counts as lost.
_BEATS = 20
_LONGEST_PAUSE_S = 0.5
# Of the last requests to a store that does not answer, in times of silence.
_LONGEST_END = 4
_STORE_ERRORS = (DistNetworkError, DistStoreError)

T = TypeVar("T")


class Nodes:
    """This launcher among those of a job.

    `course` is what they have told each other, as far as `take` has read it. For one
    thread; use as a context manager, which keeps up the contact meanwhile.

    Args:
        store: what the launchers share; node 0 serves it.
        roster: the nodes.
        rank: this one.
        silence: after how many seconds without a sign of life a node is lost.
        signals: those to the launcher.
    """

    def __init__(
        self,
        store: Store,
        roster: NodeRoster,
        rank: int,
        silence: float,
        signals: SignalPipe | None = None,
    ) -> None:
        self.course = Course(len(roster.nodes))
        self.rank = rank
        self._store, self._roster, self._silence = store, roster, silence
        self._signals = signals
        self._pause = timedelta(seconds=min(_LONGEST_PAUSE_S, silence / _BEATS))
        self._watch = Watch(store, roster, silence) if rank == 0 else None
        self._inbox: deque[LogEntry] = deque()
        self._outbox: queue.SimpleQueue[LogEntry | None] = queue.SimpleQueue()
        self._num_told = 0
        self._end = 0  # of the log, as far as `_write` knows
        self._asked_at = self._answered_at = time.monotonic()
        self._is_over = threading.Event()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._have_ended = [threading.Event(), threading.Event()]
        self._threads = [
            threading.Thread(
                target=self._follow, args=each, name="allhands-nodes", daemon=True
            )
            for each in zip((self._read, self._write), self._have_ended, strict=True)
        ]

    def __enter__(self) -> Nodes:
        self._store.set_timeout(timedelta(seconds=self._silence / 2))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None:
            line = f"allhands run: {self._roster.nodes[self.rank]} gave up: {error}"
            self.tell(Kind.FAILED, 1, (line,))
        self.tell(Kind.LEFT)
        self._signals_that_came()  # to the job that is over
        if self.rank == 0:  # it serves those that are left; not for ever
            self._wait_until(self._is_alone, self._silence)
        self._outbox.put(None)
        limit = _LONGEST_END * self._silence
        if self._wait_until(lambda: all(e.is_set() for e in self._have_ended), limit):
            for thread in self._threads:
                thread.join()
            os.close(self._news)
        self._is_over.set()

    def fileno(self) -> int:
        """Readable when `take` has something new."""
        return self._news

    def take(self) -> None:
        """Let `course` know what has come, up to the end of the attempt."""
        self._clear_news()
        while self._inbox and not self.course.is_settled:
            self.course.note(self._inbox.popleft())

    def tell(
        self,
        kind: Kind,
        number: int = 0,
        lines: tuple[str, ...] = (),
        is_secondary: bool = False,
    ) -> None:
        """Have all nodes know; never waits."""
        self._num_told += 1
        self._outbox.put(
            LogEntry(kind, self.rank, number, lines, is_secondary, self._num_told)
        )

    def tell_signal(self, number: int) -> None:
        """Have the others end, too: this launcher was told to by a signal."""
        line = (
            f"allhands run: ended by {signal_name(number)} to the launcher of "
            f"{self._roster.nodes[self.rank]}"
        )
        self.tell(Kind.SIGNALED, number, (line,))

    def await_end(self) -> None:
        """Until the attempt is over on all nodes that are left, or node 0 is lost.

        The first signal ends the job; one more, here or after one to another launcher,
        kills what still runs; two here, and nobody is waited for.
        """
        num_signals = 0
        with selectors.PollSelector() as events:
            events.register(self._news, selectors.EVENT_READ)
            if self._signals is not None:
                events.register(self._signals, selectors.EVENT_READ)
            self.take()
            while not self.course.is_settled and not self._is_over.is_set():
                for key, _ in events.select():
                    if key.fd == self._news:
                        self.take()
                        continue
                    for number in self._signals_that_came():
                        num_signals += 1
                        if num_signals > 1 or self.course.is_signaled:
                            self.tell(Kind.KILLED)
                        else:
                            self.tell_signal(number)
                    if num_signals > 1:
                        return
        self.take()

    def _wait_until(self, is_so: Callable[[], bool], limit: float) -> bool:
        """Whether it is within `limit` seconds; a signal ends the wait."""
        deadline = time.monotonic() + limit
        with selectors.PollSelector() as events:
            events.register(self._news, selectors.EVENT_READ)
            if self._signals is not None:
                events.register(self._signals, selectors.EVENT_READ)
            self._take_all()
            while not is_so():
                left = deadline - time.monotonic()
                if left <= 0 or self._signals_that_came():
                    return False
                events.select(left)
                self._take_all()
        return True

    def _is_alone(self) -> bool:
        return self.course.is_over or self._is_over.is_set()

    def _take_all(self) -> None:
        """As `take`, of whatever attempt."""
        self._clear_news()
        while self._inbox:
            self.course.note(self._inbox.popleft())

    def _clear_news(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._news)

    def _signals_that_came(self) -> list[int]:
        """Those that end a job, since the last time; never waits."""
        return [] if self._signals is None else self._signals.read()[0]

    # The two threads

    def _follow(self, act: Callable[[], None], has_ended: threading.Event) -> None:
        try:
            act()
        finally:
            has_ended.set()
            os.eventfd_write(self._news, 1)

    def _read(self) -> None:
        """Pass on the entries of the log as they come."""
        left: set[int] = set()
        index = 0
        while not self._is_over.is_set():
            try:
                text = self._store._get_within(f"log/{index}", self._pause)
            except DistStoreError:  # there is none yet
                continue
            except DistNetworkError:  # `_write` finds out what this means
                self._is_over.wait(self._pause.total_seconds())
                continue
            try:
                entry = LogEntry.read(text or b"", len(self._roster.nodes))
            except DistStoreError as error:
                self._lose_node_0(str(error))
                return
            self._pass_on(entry)
            index += 1
            if entry.kind in (Kind.LEFT, Kind.LOST):
                left.add(entry.node)
                if self._watch is not None:
                    self._watch.forget(entry.node)
            # Node 0 looks on, for it serves the others.
            if self.rank in left and self.rank != 0:
                return

    def _write(self) -> None:
        """Tell what is to be told, and show that this launcher lives."""
        try:
            while not self._is_over.is_set():
                try:
                    entry = self._outbox.get(timeout=self._pause.total_seconds())
                except queue.Empty:
                    self._show_life()
                    continue
                if entry is None:
                    break
                self._append(entry)
            self._store._withdraw_last_will()
        except _STORE_ERRORS:
            self._lose_node_0(self._why_no_answer())
        self._is_over.set()

    def _ask(self, request: Callable[[], T]) -> T:
        """Of the store; unanswered, once more: this process may have stood still."""
        self._asked_at = time.monotonic()
        try:
            return request()
        except _STORE_ERRORS:
            return request()

    def _show_life(self) -> None:
        if self._watch is None:
            self._ask(lambda: self._store.add(f"{BEAT}{self.rank}", 1))
            self._answered_at = time.monotonic()
            return
        for entry in self._watch.look():
            self._append(entry)

    def _append(self, entry: LogEntry) -> None:
        """Make it the log's last entry."""
        text = entry.to_bytes()
        while True:
            key = f"log/{self._end}"
            if self._ask(lambda: self._store.compare_set(key, b"", text)) == text:  # noqa: B023
                return
            self._end += 1

    def _pass_on(self, entry: LogEntry) -> None:
        self._inbox.append(entry)
        os.eventfd_write(self._news, 1)

    def _why_no_answer(self) -> str:
        now = time.monotonic()
        # Who is silent is waited for; this process may have been late to ask.
        if now - self._asked_at < self._silence / 4:
            return "its launcher closed the connection; was it killed?"
        silence = now - self._answered_at
        return (
            f"its launcher has not answered for {silence:.0f} s: is the host down, or "
            "the network between the two?"
        )

    def _lose_node_0(self, reason: str) -> None:
        """There is no way to the others any more."""
        self._is_over.set()
        self._pass_on(lost(self._roster, 0, reason))
