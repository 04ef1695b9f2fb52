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
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from allhands.elastic.course import Course
from allhands.elastic.entry import Entry, Kind
from allhands.elastic.failure import signal_name
from allhands.elastic.node import NodeRoster
from allhands.elastic.signs import BEAT, Watch, lost
from allhands.errors import DistNetworkError, DistStoreError
from allhands.store import Store

__all__ = ["Nodes"]

# Signs of life in the time after which a node counts as lost.
_BEATS = 20
_LONGEST_PAUSE_S = 0.5
_STORE_ERRORS = (DistNetworkError, DistStoreError)


class Nodes:
    """This launcher among those of a job.

    `course` is what they have told each other, as far as `take` has read it. For one
    thread; use as a context manager, which keeps up the contact meanwhile.

    Args:
        store: what the launchers share; node 0 serves it.
        roster: the nodes.
        rank: this one.
        silence: after how many seconds without a sign of life a node is lost.
    """

    def __init__(
        self, store: Store, roster: NodeRoster, rank: int, silence: float
    ) -> None:
        self.course = Course(len(roster.nodes))
        self.rank = rank
        self._store, self._roster, self._silence = store, roster, silence
        self._pause = timedelta(seconds=min(_LONGEST_PAUSE_S, silence / _BEATS))
        self._watch = Watch(store, roster, silence) if rank == 0 else None
        self._inbox: deque[Entry] = deque()
        self._outbox: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._num_told = 0
        self._end = 0  # of the log, as far as `_write` knows
        self._answered_at = time.monotonic()
        self._is_over = threading.Event()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._threads = [
            threading.Thread(target=target, name="allhands-nodes", daemon=True)
            for target in (self._read, self._write)
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
        if self.rank == 0:
            self._serve_to_the_end()
        self._outbox.put(None)
        for thread in self._threads:
            thread.join()
        os.close(self._news)

    def fileno(self) -> int:
        """Readable when `take` has something new."""
        return self._news

    def take(self) -> None:
        """Let `course` know what has come, up to the end of the attempt."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._news)
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
            Entry(kind, self.rank, number, lines, is_secondary, self._num_told)
        )

    def tell_signal(self, number: int) -> None:
        """Have the others end, too: this launcher was told to by a signal."""
        line = (
            f"allhands run: ended by {signal_name(number)} to the launcher of "
            f"{self._roster.nodes[self.rank]}"
        )
        self.tell(Kind.SIGNALED, number, (line,))

    def await_end(self, signals: int | None) -> None:
        """Until the attempt is over on all nodes that are left, or node 0 is lost.

        Args:
            signals: a descriptor that yields the numbers of signals to the launcher.
                The first ends the job; one more, here or after one to another
                launcher, kills what still runs; two here, and nobody is waited for.
        """
        num_signals = 0
        with selectors.PollSelector() as events:
            events.register(self._news, selectors.EVENT_READ)
            if signals is not None:
                events.register(signals, selectors.EVENT_READ)
            self.take()
            while not self.course.is_settled and not self._is_over.is_set():
                for key, _ in events.select():
                    if key.fd == self._news:
                        self.take()
                        continue
                    for number in os.read(key.fd, 64):
                        if number in (signal.SIGUSR1, signal.SIGUSR2):
                            continue
                        num_signals += 1
                        if num_signals > 1 or self.course.is_signaled:
                            self.tell(Kind.KILLED)
                        else:
                            self.tell_signal(number)
                    if num_signals > 1:
                        return
        self.take()

    def _serve_to_the_end(self) -> None:
        """Until no other node needs the store; not for ever."""
        deadline = time.monotonic() + self._silence
        self.course.next_attempt()
        with selectors.PollSelector() as events:
            events.register(self._news, selectors.EVENT_READ)
            self.take()
            while not self.course.is_settled and not self._is_over.is_set():
                if not events.select(deadline - time.monotonic()):
                    break
                self.take()

    # The two threads

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
                entry = Entry.read(text or b"", len(self._roster.nodes))
            except DistStoreError as error:
                self._lose_node_0(str(error))
                return
            self._pass_on(entry)
            index += 1
            if entry.kind in (Kind.LEFT, Kind.LOST):
                left.add(entry.node)
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

    def _show_life(self) -> None:
        if self._watch is None:
            _insist(lambda: self._store.add(f"{BEAT}{self.rank}", 1))
            self._answered_at = time.monotonic()
            return
        for entry in self._watch.look():
            self._append(entry)

    def _append(self, entry: Entry) -> None:
        """Make it the log's last entry."""
        text = entry.to_bytes()
        while True:
            key = f"log/{self._end}"
            if _insist(lambda: self._store.compare_set(key, b"", text)) == text:  # noqa: B023
                return
            self._end += 1

    def _pass_on(self, entry: Entry) -> None:
        self._inbox.append(entry)
        os.eventfd_write(self._news, 1)

    def _why_no_answer(self) -> str:
        silence = time.monotonic() - self._answered_at
        if silence < self._silence / 2:
            return "its launcher closed the connection; was it killed?"
        return (
            f"its launcher has not answered for {silence:.0f} s: is the host down, or "
            "the network between the two?"
        )

    def _lose_node_0(self, reason: str) -> None:
        """There is no way to the others any more."""
        self._is_over.set()
        self._pass_on(lost(self._roster, 0, reason))


T = TypeVar("T")


def _insist(request: Callable[[], T]) -> T:
    """Its result; without an answer, one more try: perhaps this process stood still."""
    try:
        return request()
    except _STORE_ERRORS:
        return request()
