"""One attempt to run a job: a loop over exits, output, signals and deadlines.

Everything happens in one thread that sleeps in one `select`. It never waits for a
single rank, for the console, or for a file.

When a rank fails, the others are stopped: SIGTERM to their process groups, and after
`shutdown_timeout` seconds (see `WorkerSpec`) SIGKILL. SIGTERM, SIGINT, SIGHUP and
SIGQUIT to the launcher, or those that the user has chosen, are passed on in place of
SIGTERM, with the same limit; a second SIGINT kills at once. SIGUSR1 and SIGUSR2 go to
the ranks (not to what these have started) and change nothing here, unless the user has
chosen them.

Where the job has more nodes, a failure or a signal here ends it there, and the other
way round.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from allhands import settings
from allhands.elastic.failure import Failure, first_failure, shell_code
from allhands.elastic.guard import Guard
from allhands.elastic.log_entry import Kind
from allhands.elastic.logs import Std
from allhands.elastic.nodes import Nodes
from allhands.elastic.oom import oom_kills
from allhands.elastic.output import Screen
from allhands.elastic.preloaded import Preloaded
from allhands.elastic.record_collection import Look, Records
from allhands.elastic.records import ENDED_WELL
from allhands.elastic.report import report
from allhands.elastic.signals import SignalPipe
from allhands.elastic.start import Start, executing
from allhands.elastic.worker import Stream, Worker
from allhands.elastic.worker_spec import WorkerSpec
from allhands.store.endings import Endings

__all__ = ["WorkerGroup"]

# A rank that failed because another one did may be quicker to end than the other.
_SETTLE_S = 1.0
# A wrapper may pass on the Ctrl-C that the terminal has already sent: that is one.
_SAME_CTRL_C_S = 0.2
_RECORDS_LOOK_S = 0.01
# Reads that empty a pipe (64 KiB) even where its writer goes on writing.
_DRAIN_READS = 16


class WorkerGroup:
    """All ranks of a job, from their start to the end of the last one.

    Not thread-safe; `run` once.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        attempt: int,
        screens: Mapping[Std, Screen],
        before_exec: Callable[[], None] | None = None,
        nodes: Nodes | None = None,
        look: Look | None = None,
        endings: Endings | None = None,
    ) -> None:
        self.workers: list[Worker] = []
        self.failures: list[Failure] = []
        """Ranks that failed, in the order in which they ended."""
        self.stopped: dict[int, str] = {}
        """Ranks that were told to stop, with the end of their stderr before that."""
        self.killed: list[int] = []
        """Ranks of these that had to be killed, because they did not stop."""
        self.ended_by = 0
        """The signal to the launcher that ended the attempt, if one did."""
        self._spec, self._attempt = spec, attempt
        self._screens, self._before_exec = screens, before_exec
        self._nodes, self._endings = nodes, endings
        self._preloaded: Preloaded | None = None
        self._is_loading = False
        self._deadline: float | None = None
        self._at_deadline: Callable[[], None] = self._kill
        self._is_stopping = False
        self._interrupted_at = 0.0
        self._asked_at: float | None = None
        self._silent: dict[int, str] = {}
        self._oom_before = oom_kills()
        self._records: Records | None = None
        if spec.dumps:
            folder, path = spec.dump_directory(attempt), spec.dump_file(attempt)
            self._records = Records(folder, path, look)
        self.record_problem = ""
        self.record_path = ""
        """The file with the flight records of a failed attempt, if there is one."""
        self._events = selectors.PollSelector()
        # The ranks' streams are a selector in the selector: while the console takes
        # no more, the loop leaves all of them out at once.
        self._streams = selectors.EpollSelector()
        self._pidfds: dict[int, int] = {}  # by rank; empty where the kernel has none

    def run(self, signals: SignalPipe | None) -> None:
        """Start the ranks; return when all have ended, with all that they started.

        Args:
            signals: those to the launcher.

        Raises:
            OSError: a rank could not be started (those before it are ended).
        """
        mark = uuid.uuid4().hex
        guard = Guard(settings.job_mark.name, mark)
        try:
            if signals is not None:
                self._on_readable(signals.fileno(), lambda: self._take_signals(signals))
            if self._nodes is not None:
                self._on_readable(self._nodes.fileno(), self._follow_nodes)
                self._follow_nodes()
            with self._way_to_start(mark, guard) as start:
                for local_rank in range(
                    0 if self._is_ending else self._spec.num_workers
                ):
                    self._start(local_rank, mark, guard, start)
            while self._running:
                self._turn()
            if self.failures and not self._is_stopping:
                self._tell_of_failure()  # the last rank ended before `_fail` was due
        finally:
            self._kill()  # none is left to, unless the above was left by an exception
            guard.sweep()
            self._finish()

    @contextmanager
    def _way_to_start(self, mark: str, guard: Guard) -> Iterator[Start]:
        """Yields what starts a rank; those that are forked run afterwards."""
        spec, attempt = self._spec, self._attempt
        if spec.preload is None:
            yield executing(self._before_exec)
            return
        environment = spec.shared_environment(attempt, mark, os.environ)
        with guard.starting():
            preloaded = Preloaded(
                spec.preload, spec.command(0), environment, self._before_exec
            )
            self._preloaded = preloaded
            guard.watch(preloaded.pid)
        try:
            self._load(preloaded)
            yield preloaded.start
        except BaseException:
            self._kill()  # before a rank goes on
            raise
        finally:
            preloaded.end()

    def _load(self, preloaded: Preloaded) -> None:
        """Until the modules are loaded, or a signal ends it."""
        self._is_loading = True

        def loaded() -> None:
            self._is_loading = False

        self._on_readable(preloaded.fileno(), loaded)
        try:
            while self._is_loading and not self._is_ending:
                self._turn()
        finally:
            self._is_loading = False
            self._events.unregister(preloaded.fileno())
        if not self._is_ending:
            preloaded.check()

    def _start(self, local_rank: int, mark: str, guard: Guard, start: Start) -> None:
        with guard.starting():
            worker = Worker(
                self._spec, local_rank, self._attempt, mark, self._screens, start
            )
            guard.watch(worker.pid)
        self.workers.append(worker)
        for stream in worker.streams:
            self._streams.register(stream.fd, selectors.EVENT_READ, stream)
        try:
            pidfd = os.pidfd_open(worker.pid)
        except OSError:
            return  # an old kernel: `_turn` looks every monitor_interval
        self._pidfds[local_rank] = pidfd
        self._on_readable(pidfd, lambda: self._look(worker))

    @property
    def _is_ending(self) -> bool:
        return self._is_stopping or self.ended_by != 0

    @property
    def _running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.exit_code is None]

    @property
    def done(self) -> list[int]:
        """Ranks that ended on their own, with exit code 0."""
        return [
            worker.rank
            for worker in self.workers
            if worker.exit_code == 0 and worker.rank not in self.stopped
        ]

    def _on_readable(self, fd: int, action: Callable[[], object]) -> None:
        self._events.register(fd, selectors.EVENT_READ, action)

    # The loop

    def _turn(self) -> None:
        """Sleep until something happens, and deal with it."""
        self._follow_console()
        for key, _ in self._events.select(self._time_left()):
            if key.fd in self._events.get_map():  # else removed by one before it
                key.data()
        for worker in self._running:
            if worker.local_rank not in self._pidfds:
                self._look(worker)
        self._meet_deadline()

    def _time_left(self) -> float | None:
        waits = []
        if len(self._pidfds) < len(self._running):
            waits.append(self._spec.monitor_interval)
        if self._deadline is not None:
            waits.append(max(0.0, self._deadline - time.monotonic()))
        return min(waits) if waits else None

    def _meet_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self._at_deadline()

    def _set_deadline(self, seconds: float, action: Callable[[], None]) -> None:
        self._deadline = time.monotonic() + seconds
        self._at_deadline = action

    # Output

    def _follow_console(self) -> None:
        """Read from the ranks only while the console takes what they write."""
        screens = set(self._screens.values())
        for screen in screens:
            self._watch(
                screen.is_clogged, screen.fd, selectors.EVENT_WRITE, screen.flush
            )
        is_free = not any(screen.is_clogged for screen in screens)
        streams = self._streams.fileno()
        self._watch(is_free, streams, selectors.EVENT_READ, self._read_streams)
        if any(screen.is_lost for screen in screens) and not self._is_stopping:
            self._end_as_told(signal.SIGPIPE)
            self._stop(signal.SIGTERM)

    def _watch(
        self, is_wanted: bool, fd: int, event: int, action: Callable[[], object]
    ) -> None:
        is_watched = fd in self._events.get_map()
        if is_wanted and not is_watched:
            self._events.register(fd, event, action)
        elif is_watched and not is_wanted:
            self._events.unregister(fd)

    def _read_streams(self) -> None:
        for key, _ in self._streams.select(0):
            self._read(key.data)

    def _read(self, stream: Stream) -> bool:
        """Pass on a piece of a rank's output; False: nothing is there now."""
        if not stream.is_open:
            return False
        num_bytes = stream.read()
        if not stream.is_open:
            self._streams.unregister(stream.fd)
        return num_bytes > 0

    def _drain(self, worker: Worker) -> None:
        for stream in worker.streams:
            for _ in range(_DRAIN_READS):
                if not self._read(stream):
                    break

    # How ranks end

    def _look(self, worker: Worker) -> None:
        """Take note if the rank has ended, and stop the others if it has failed."""
        if worker.exit_code is not None or not worker.look():
            return
        self._close_pidfd(worker)
        self._drain(worker)
        if worker.rank in self.stopped:
            return
        if worker.exit_code == 0:
            if self._endings is not None and self._running:
                self._endings.note(worker.rank, worker.pid)
            return
        failure = self._failure(worker)
        self.failures.append(failure)
        if self._is_stopping:
            return
        if not failure.is_secondary:
            self._fail()
        elif self._deadline is None:
            self._set_deadline(_SETTLE_S, self._fail)

    def _close_pidfd(self, worker: Worker) -> None:
        pidfd = self._pidfds.pop(worker.local_rank, None)
        if pidfd is not None:
            self._events.unregister(pidfd)
            os.close(pidfd)

    def _fail(self) -> None:
        """End the attempt, for ranks have failed, on all nodes."""
        if not self._begin_to_ask(self._fail):
            return
        self._stop(signal.SIGTERM)
        self._tell_of_failure()

    def _tell_of_failure(self) -> None:
        if self._nodes is not None:
            first = first_failure(self.failures)
            code, lines = shell_code(first.exit_code), tuple(report([first], 0))
            self._nodes.tell(Kind.FAILED, code, lines, first.is_secondary)

    def _end_as_told(self, number: int) -> None:
        """Signal `number` to the launcher is what ends the attempt, on all nodes."""
        self.ended_by = number
        if self._nodes is not None:
            self._nodes.tell_signal(number)

    def _follow_nodes(self) -> None:
        """End the attempt where it has to end on another node."""
        assert self._nodes is not None
        self._nodes.take()
        course = self._nodes.course
        if course.is_to_kill:
            self._kill()
        cause = course.cause
        if cause is None or self._is_stopping:
            return
        if cause.kind is Kind.SIGNALED:
            self.ended_by = cause.number
            is_passed_on = cause.number != signal.SIGPIPE  # of a console that is gone
            self._stop(cause.number if is_passed_on else signal.SIGTERM)
        elif not cause.is_secondary:
            self._stop(signal.SIGTERM)
        elif self._deadline is None:
            self._set_deadline(_SETTLE_S, lambda: self._stop(signal.SIGTERM))

    def _begin_to_ask(self, then: Callable[[], None]) -> bool:
        """Whether all flight records are there; if not, `then` is called once they are.

        Those of ranks that do not answer are not waited for long.
        """
        if self._records is None:
            return True
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._records.ask(self._running)
        is_late = time.monotonic() > self._asked_at + self._records.limit
        if is_late or self._records.are_complete:
            self._silent = self._records.silent
            return True
        self._set_deadline(_RECORDS_LOOK_S, then)
        return False

    def _stop(self, number: int) -> None:
        """End the attempt: send `number` to all that run, SIGKILL after the limit."""
        self._is_stopping = True
        for worker in self._running:
            self._look(worker)  # it may have failed on its own, unnoticed so far
        for worker in self._running:
            self._drain(worker)
            self.stopped[worker.rank] = worker.stderr_tail()
            worker.send(number, to_group=True)
        self._set_deadline(self._spec.shutdown_timeout, self._kill)

    def _kill(self) -> None:
        for worker in self._running:
            self.killed.append(worker.rank)
            worker.send(signal.SIGKILL, to_group=True)

    def _finish(self) -> None:
        """Pass on the last output, name what failed, let go of the processes."""
        for worker in self.workers:
            worker.reap()
            self._close_pidfd(worker)
        if self._preloaded is not None:
            self._preloaded.reap()
        self._deadline = None
        if self.ended_by:
            self._set_deadline(self._spec.shutdown_timeout, self._drop_output)
        for _ in range(_DRAIN_READS):
            if not any([self._read(s) for w in self.workers for s in w.streams]):
                break
            self._wait_for_console()
        for worker in self.workers:
            worker.close_streams()
        if self.failures and all(failure.is_secondary for failure in self.failures):
            # Perhaps the cause is a rank that was stopped while it was failing.
            self.failures += [
                self._failure(worker)
                for worker in self.workers
                if worker.rank in self.stopped
            ]
        if self._records is not None:
            self._gather(self._records)
        for screen in set(self._screens.values()):
            screen.close()
        self._wait_for_console()
        self._events.close()
        self._streams.close()

    def _gather(self, records: Records) -> None:
        """Put the flight records together, with how ranks ended on their own."""
        endings = {f.rank: f.ending for f in self.failures if not f.was_stopped}
        endings |= self._silent | dict.fromkeys(self.done, ENDED_WELL)
        try:
            self.record_path = records.gather(endings)
        except OSError as error:
            self.record_problem = f"{records.path}: {error.strerror}"

    def _wait_for_console(self) -> None:
        """Until it has taken everything; not for ever if the job was to end."""
        while any(screen.is_clogged for screen in self._screens.values()):
            self._follow_console()
            for key, _ in self._events.select(self._time_left()):
                key.data()
            self._meet_deadline()

    def _drop_output(self) -> None:
        for screen in self._screens.values():
            if screen.is_clogged:
                screen.drop()

    @property
    def _host(self) -> str:
        ranks = self._spec.node_ranks
        node = f" (node {ranks.node})" if ranks.num_nodes > 1 else ""
        return socket.gethostname() + node

    def _failure(self, worker: Worker) -> Failure:
        assert worker.exit_code is not None
        was_stopped = worker.rank in self.stopped
        return Failure(
            rank=worker.rank,
            local_rank=worker.local_rank,
            host=self._host,
            pid=worker.pid,
            exit_code=worker.exit_code,
            elapsed=worker.ended_at - worker.started_at,
            stderr=self.stopped[worker.rank] if was_stopped else worker.stderr_tail(),
            stderr_path=worker.stderr_path,
            was_stopped=was_stopped,
            oom_kills=oom_kills() - self._oom_before,
            ended_at=time.time() - (time.monotonic() - worker.ended_at),
        )

    # Signals to the launcher

    def _take_signals(self, signals: SignalPipe) -> None:
        ending, passed_on = signals.read()
        for number in passed_on:
            for worker in self._running:
                worker.send(number, to_group=False)
        for number in ending:
            self._end_by(number)

    def _end_by(self, number: int) -> None:
        now = time.monotonic()
        if not self.ended_by:  # also where ranks have failed: then no other attempt
            self._end_as_told(number)
        if self._is_loading:
            pass  # who loads looks at `ended_by`
        elif not self._running:
            self._drop_output()  # all that still waits
        elif not self._is_stopping:
            self._stop(number)
        elif number != signal.SIGINT:
            for worker in self._running:
                worker.send(number, to_group=True)
        elif now - self._interrupted_at > _SAME_CTRL_C_S:
            self._kill()
            if self._nodes is not None:
                self._nodes.tell(Kind.KILLED)
        if number == signal.SIGINT:
            self._interrupted_at = now
