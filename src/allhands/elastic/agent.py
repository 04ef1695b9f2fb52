"""The agent of one node: attempts to run a job until one is good or none is left.

It owns the console for as long as `run` takes, and gives the exit code that the
launcher ends with.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from allhands.elastic.descriptors import num_held, room_for
from allhands.elastic.error_file import write_error_file
from allhands.elastic.failure import (
    Failure,
    first_failure,
    shell_code,
    signal_name,
)
from allhands.elastic.log_entry import Kind
from allhands.elastic.logs import Std
from allhands.elastic.nodes import Nodes
from allhands.elastic.output import Screen
from allhands.elastic.record_collection import Look
from allhands.elastic.report import headline, report, report_from_elsewhere, some
from allhands.elastic.signals import SignalPipe
from allhands.elastic.worker_group import WorkerGroup
from allhands.elastic.worker_spec import WorkerSpec
from allhands.store import Store
from allhands.store.endings import Endings, part_of_attempt

__all__ = ["Agent", "Outcome"]


class Outcome(NamedTuple):
    """How a job ended, as one of its launchers knows it."""

    exit_code: int
    """The launcher's. 0 if every rank of the last attempt returned 0. Else that of the
    rank that failed first, as a shell gives it: 128 + n where signal n ended it.
    128 + n also where signal n to a launcher ended the job. 1 where a node is lost.
    With several nodes it is the same on all of them."""
    lines: Sequence[str]
    """What to tell of it, for people."""
    failures: Sequence[Failure]
    """Ranks of this node that failed in the last attempt, the cause first."""
    ended_by: int = 0
    """The signal to a launcher that ended the job, if one did."""
    first_rank: int = 0
    """The number of this node's first rank."""


class Agent:
    """Runs a job's ranks on this node. One `run` at a time."""

    def __init__(
        self,
        spec: WorkerSpec,
        signals: SignalPipe | None = None,
        nodes: Nodes | None = None,
        explain: Callable[[str], str] | None = None,
        error_file: str = "",
        look: Look | None = None,
        store: Store | None = None,
    ) -> None:
        """Make one.

        Args:
            spec: what to run.
            signals: those to the launcher.
            nodes: the launchers of the job, where it has several nodes.
            explain: what is wrong by the flight records in that file, in a line; it is
                asked where the job has one node.
            error_file: where to write what ended the job, if a rank of this node did.
            look: tells more of ranks that leave no record though they run.
            store: the ranks' store, if requests to it wait for no network; the ranks
                learn there which of them have ended well.
        """
        self._spec, self._signals = spec, signals
        self._nodes, self._explain = nodes, explain
        self._error_file, self._look, self._store = error_file, look, store
        self._screens = open_screens()

    def run(self) -> Outcome:
        """Run the job to its end, with restarts.

        After it nothing that the ranks started is left. It tells of restarts, and
        leaves the end to the caller, see `tell`.

        Raises:
            OSError: a rank could not be started, or there are too few descriptors for
                all of them; then none was.
        """
        ranks, held = self._spec.num_workers, num_held(self._spec)
        with room_for(ranks, held) as before_exec:
            for attempt in range(self._spec.max_restarts + 1):
                group = WorkerGroup(
                    self._spec,
                    attempt,
                    self._screens,
                    before_exec,
                    self._nodes,
                    self._look,
                    self._endings(attempt),
                )
                group.run(self._signals)
                if self._nodes is not None:
                    self._nodes.tell(Kind.DONE, self._own_code(group))
                    self._nodes.await_end()
                is_last = attempt == self._spec.max_restarts
                if is_last or not self._is_worth_another(group):
                    break
                restart = self._restart_line(group, attempt + 1)
                self._say([*self._record_lines(group), restart])
                if self._nodes is not None:
                    self._nodes.course.next_attempt()
        if self._nodes is None:
            outcome = self._conclude(group)
        else:
            outcome = self._conclude_with(self._nodes, group)
        return outcome._replace(
            lines=[*outcome.lines, *self._record_lines(group)],
            first_rank=self._spec.node_ranks.first_rank,
        )

    def tell(self, lines: Sequence[str]) -> None:
        """Write what a job's end was, below all that the ranks wrote; wait for that."""
        self._say(lines)
        self._await_console()

    def _endings(self, attempt: int) -> Endings | None:
        if self._store is None:
            return None
        part = part_of_attempt(self._store, str(attempt))
        return Endings(part, self._spec.node_ranks.world_size)

    def _record_lines(self, group: WorkerGroup) -> list[str]:
        problem, path = group.record_problem, group.record_path
        lines = [f"allhands run: no flight records: {problem}"] if problem else []
        if not path:
            return lines
        # A file has this node's ranks: the others' would seem to have left no record.
        is_whole = self._nodes is None
        told = self._explain(path) if self._explain and is_whole else ""
        lines += [f"allhands run: by the flight records, {told}"] if told else []
        return [*lines, f"allhands run: flight records: {path}"]

    def _is_worth_another(self, group: WorkerGroup) -> bool:
        """Whether ranks failed, and nothing else ended the attempt."""
        if self._nodes is None:
            return bool(group.failures) and not group.ended_by
        course = self._nodes.course
        is_by_rank = course.cause is not None and course.cause.kind is Kind.FAILED
        is_disturbed = course.is_signaled or bool(course.lost | course.left)
        return is_by_rank and course.is_settled and not is_disturbed

    def _restart_line(self, group: WorkerGroup, attempt: int) -> str:
        if self._nodes is None:
            first = first_failure(group.failures)
            head = f"allhands run: rank {first.rank} failed: {headline(first)}"
        else:
            assert self._nodes.course.cause is not None
            head, *_ = self._nodes.course.cause.lines
        return (
            f"{head}; all ranks start again (restart {attempt} of "
            f"{self._spec.max_restarts})"
        )

    def _conclude(self, group: WorkerGroup) -> Outcome:
        """What happened on this node."""
        lines: list[str] = []
        if group.failures:
            first = first_failure(group.failures)
            lines += report(group.failures, len(group.stopped), group.done)
            lines += self._write_error_file(first)
        elif group.ended_by not in (0, signal.SIGPIPE) and self._own_code(group):
            lines.append(self._ended_line(group))
        lines += _lost_lines(self._screens)
        code, failures = self._own_code(group), _cause_first(group.failures)
        return Outcome(code, lines, failures, 0 if failures else group.ended_by)

    def _write_error_file(self, first: Failure) -> list[str]:
        if self._error_file:
            try:
                write_error_file(self._error_file, first)
            except OSError as error:
                return [f"allhands run: no error file: {error}"]
        return []

    def _own_code(self, group: WorkerGroup) -> int:
        """The exit code for what happened here."""
        if group.failures:
            return shell_code(first_failure(group.failures).exit_code)
        codes = [worker.exit_code for worker in group.workers]
        has_stopped = bool(group.stopped) and any(codes)
        if group.ended_by and (any(codes) or not codes):
            return 128 + group.ended_by
        return int(has_stopped)

    def _conclude_with(self, nodes: Nodes, group: WorkerGroup) -> Outcome:
        """As `_conclude`, for what all nodes know."""
        cause = nodes.course.cause
        if cause is None or nodes.course.is_clean:
            return self._conclude(group)
        if cause.node == nodes.rank and cause.kind is not Kind.LOST:
            lines = self._conclude(group).lines
        else:
            stopped = len(group.stopped)
            lines = report_from_elsewhere(cause.lines, group.failures, stopped)
        failures, number = _cause_first(group.failures), cause.number
        if cause.kind is Kind.SIGNALED:
            return Outcome(128 + number, lines, failures, number)
        return Outcome(number, lines, failures)

    def _ended_line(self, group: WorkerGroup) -> str:
        line = f"allhands run: ended by {signal_name(group.ended_by)}"
        if not group.killed:
            return line
        killed = sorted(set(group.killed))
        count = f" ({len(killed)} ranks)" if len(killed) > 4 else ""
        return f"{line}; still running and killed: rank {some(killed)}{count}"

    def _say(self, lines: Sequence[str]) -> None:
        """Write to stderr, after everything that the ranks have written."""
        self._screens[Std.ERR].say("".join(f"{line}\n" for line in lines))

    def _await_console(self) -> None:
        """Until it has taken everything; a signal that ends a job ends that, too."""
        screen = self._screens[Std.ERR]
        with selectors.PollSelector() as events:
            events.register(screen.fd, selectors.EVENT_WRITE)
            if self._signals is not None:
                events.register(self._signals, selectors.EVENT_READ)
            while screen.is_clogged:
                events.select()
                screen.flush()
                if self._signals is not None and self._signals.read()[0]:
                    return


def _cause_first(failures: Sequence[Failure]) -> list[Failure]:
    if not failures:
        return []
    first = first_failure(failures)
    return [first, *(failure for failure in failures if failure is not first)]


def _lost_lines(screens: Mapping[Std, Screen]) -> list[str]:
    names = {Std.OUT: "stdout", Std.ERR: "stderr"}
    return [
        f"allhands run: {names[std]} takes no more output: {screen.problem.strerror}; "
        "the job was ended, as where nobody reads its output"
        for std, screen in screens.items()
        if screen.problem is not None
    ]


def open_screens() -> Mapping[Std, Screen]:
    """The launcher's stdout and stderr; one screen if they are the same file."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # of a program that was started without it
            stream.flush()
    out = Screen(1, is_live(1))
    same = os.path.sameopenfile(1, 2)
    return {Std.OUT: out, Std.ERR: out if same else Screen(2, is_live(2))}


def is_live(fd: int) -> bool:
    """Whether it is a terminal that understands escape sequences."""
    return os.isatty(fd) and os.environ.get("TERM", "dumb") != "dumb"
