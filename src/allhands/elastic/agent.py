"""The agent of one node: attempts to run a job until one is good or none is left.

It owns the console for as long as `run` takes, and gives the exit code that the
launcher ends with.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
from collections.abc import Callable, Mapping

from allhands.elastic.descriptors import num_held, room_for
from allhands.elastic.entry import Kind
from allhands.elastic.error_file import write_error_file
from allhands.elastic.failure import (
    Failure,
    first_failure,
    shell_code,
    signal_name,
)
from allhands.elastic.job import Job
from allhands.elastic.logs import Std
from allhands.elastic.nodes import Nodes
from allhands.elastic.output import Screen
from allhands.elastic.report import headline, report, report_from_elsewhere, some
from allhands.elastic.signals import ending_signals
from allhands.elastic.worker_group import WorkerGroup

__all__ = ["Agent"]


class Agent:
    """Runs a job's ranks on this node. One `run` at a time."""

    def __init__(
        self,
        job: Job,
        signals: int | None = None,
        nodes: Nodes | None = None,
        explain: Callable[[str], str] | None = None,
        error_file: str = "",
    ) -> None:
        """Make one.

        Args:
            job: what to run.
            signals: a descriptor that yields the numbers of signals to the launcher.
            nodes: the launchers of the job, where it has several nodes.
            explain: what is wrong by the flight records in that file, in a line; it is
                asked where the job has one node.
            error_file: where to write what ended the job, if a rank of this node did.
        """
        self._job, self._signals = job, signals
        self._nodes, self._explain = nodes, explain
        self._error_file = error_file
        self._screens = open_screens()

    def run(self) -> int:
        """Run the job to its end, with restarts; returns the launcher's exit code.

        0 if every rank of the last attempt returned 0. Else that of the rank that
        failed first, as a shell gives it: 128 + n where signal n ended it. 128 + n
        also where signal n to the launcher ended the job. 1 where a node is lost.
        After it nothing that the ranks started is left. With several nodes, all of
        this is the same on all of them.

        Raises:
            OSError: a rank could not be started, or there are too few descriptors for
                all of them; then none was.
        """
        ranks, held = self._job.num_workers, num_held(self._job)
        with room_for(ranks, held) as before_exec:
            for attempt in range(self._job.max_restarts + 1):
                group = WorkerGroup(
                    self._job, attempt, self._screens, before_exec, self._nodes
                )
                group.run(self._signals)
                if self._nodes is not None:
                    self._nodes.tell(Kind.DONE, self._own_code(group))
                    self._nodes.await_end()
                is_last = attempt == self._job.max_restarts
                if is_last or not self._is_worth_another(group):
                    break
                self._tell_of_records(group)
                self._say([self._restart_line(group, attempt + 1)])
                if self._nodes is not None:
                    self._nodes.course.next_attempt()
        if self._nodes is None:
            code = self._conclude(group)
        else:
            code = self._conclude_with(self._nodes, group)
        self._tell_of_records(group)
        self._await_console()
        return code

    def _tell_of_records(self, group: WorkerGroup) -> None:
        if group.record_problem:
            self._say([f"allhands run: no flight records: {group.record_problem}"])
        if not group.record_path:
            return
        # A file has this node's ranks: the others' would seem to have left no record.
        is_whole = self._nodes is None
        told = self._explain(group.record_path) if self._explain and is_whole else ""
        lines = [f"allhands run: by the flight records, {told}"] if told else []
        self._say([*lines, f"allhands run: flight records: {group.record_path}"])

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
            f"{self._job.max_restarts})"
        )

    def _conclude(self, group: WorkerGroup) -> int:
        if group.failures:
            self._say(report(group.failures, len(group.stopped), group.done))
            self._write_error_file(first_failure(group.failures))
        elif group.ended_by not in (0, signal.SIGPIPE) and self._own_code(group):
            self._say([self._ended_line(group)])
        return self._own_code(group)

    def _write_error_file(self, first: Failure) -> None:
        if not self._error_file:
            return
        try:
            write_error_file(self._error_file, first)
        except OSError as error:
            self._say([f"allhands run: no error file: {error}"])

    def _own_code(self, group: WorkerGroup) -> int:
        """The exit code for what happened here."""
        if group.failures:
            return shell_code(first_failure(group.failures).exit_code)
        codes = [worker.exit_code for worker in group.workers]
        has_stopped = bool(group.stopped) and any(codes)
        if group.ended_by and (any(codes) or not codes):
            return 128 + group.ended_by
        return int(has_stopped)

    def _conclude_with(self, nodes: Nodes, group: WorkerGroup) -> int:
        """As `_conclude`, for what all nodes know."""
        cause = nodes.course.cause
        if cause is None or nodes.course.is_clean:
            return self._conclude(group)
        if cause.node == nodes.rank and cause.kind is not Kind.LOST:
            self._conclude(group)
        else:
            stopped = len(group.stopped)
            self._say(report_from_elsewhere(cause.lines, group.failures, stopped))
        return 128 + cause.number if cause.kind is Kind.SIGNALED else cause.number

    def _ended_line(self, group: WorkerGroup) -> str:
        line = f"allhands run: ended by {signal_name(group.ended_by)}"
        if not group.killed:
            return line
        killed = sorted(set(group.killed))
        count = f" ({len(killed)} ranks)" if len(killed) > 4 else ""
        return f"{line}; still running and killed: rank {some(killed)}{count}"

    def _say(self, lines: list[str]) -> None:
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
                if self._signals is not None and ending_signals(self._signals):
                    return


def open_screens() -> Mapping[Std, Screen]:
    """The launcher's stdout and stderr; one screen if they are the same file."""
    sys.stdout.flush()
    sys.stderr.flush()
    out = Screen(1, is_live(1))
    same = os.path.sameopenfile(1, 2)
    return {Std.OUT: out, Std.ERR: out if same else Screen(2, is_live(2))}


def is_live(fd: int) -> bool:
    """Whether it is a terminal that understands escape sequences."""
    return os.isatty(fd) and os.environ.get("TERM", "dumb") != "dumb"
