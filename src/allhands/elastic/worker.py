"""One rank as a process: started in a session of its own, its streams, its end.

A worker that has ended stays unreaped until `reap`, so that its pid (and the process
group of that number) cannot come to mean another process while something may still be
sent to it. One thread.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from allhands.elastic.filtered_log import FilteredLog
from allhands.elastic.log_file import LogFile
from allhands.elastic.logs import Std
from allhands.elastic.output import RankOutput, Screen
from allhands.elastic.start import Program, Start
from allhands.elastic.worker_spec import WorkerSpec

__all__ = ["Stream", "Worker"]

_TAIL_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024


class _Sink(Protocol):
    def feed(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Stream:
    """The reading end of a rank's stdout or stderr; every sink gets every piece."""

    def __init__(self, fd: int, sinks: Sequence[_Sink]) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.is_open = True
        self._sinks = sinks

    def read(self) -> int:
        """Pass on a piece of what is there; 0: nothing now, or the end was reached."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        for sink in self._sinks:
            sink.feed(data)
        if not data:
            self.close()
        return len(data)

    def close(self) -> None:
        """Stop reading, and say so to the sinks; idempotent."""
        if self.is_open:
            self.is_open = False
            os.close(self.fd)
            for sink in self._sinks:
                sink.close()


class _Tail:
    """The last bytes of a stream that passes through the launcher."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        self._bytes += data
        if len(self._bytes) > 2 * _TAIL_BYTES:
            del self._bytes[:-_TAIL_BYTES]

    def close(self) -> None:
        pass

    def text(self) -> str:
        return self._bytes[-_TAIL_BYTES:].decode(errors="replace")


class Worker:
    """A running (or ended) rank."""

    def __init__(
        self,
        spec: WorkerSpec,
        local_rank: int,
        attempt: int,
        mark: str,
        screens: Mapping[Std, Screen],
        start: Start,
    ) -> None:
        """Start it.

        Raises:
            OSError: its program cannot be started, or a log file not be written.
        """
        self.local_rank = local_rank
        self.rank = spec.rank(local_rank)
        self.streams: list[Stream] = []
        self.stderr_path = ""
        self.exit_code: int | None = None
        """None while it runs; negative: the signal that ended it."""
        self.ended_at = 0.0
        self._tail = _Tail()
        self._stderr_start = 0
        self._spec, self._attempt = spec, attempt
        given: list[int] = []  # to the process; the launcher closes its copies
        try:
            out = self._open(Std.OUT, screens, given)
            err = self._open(Std.ERR, screens, given)
            self.started_at = time.monotonic()
            self._process = start(
                Program(
                    list(spec.command(local_rank)),
                    self._environment(mark, screens[Std.OUT]),
                    # As with mpiexec: what is typed or piped in goes to the first rank.
                    is_typed_to=local_rank == 0,
                    stdout=out,
                    stderr=err,
                    inherited=spec.inherited(local_rank) if spec.inherited else (),
                )
            )
        except BlockingIOError:  # EAGAIN of fork
            self.close_streams()
            raise OSError(self._no_process()) from None
        except BaseException:
            self.close_streams()
            raise
        finally:
            for fd in given:
                os.close(fd)
        self.pid = self._process.pid

    def _no_process(self) -> str:
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        allowed = "" if limit == resource.RLIM_INFINITY else f", here {limit}"
        size = self._spec.node_ranks.world_size
        return (
            f"the kernel allows no process for rank {self.rank} of {size}: raise the "
            f"limit of this user (`ulimit -u`{allowed}) or of the container "
            f"(pids.max), or start fewer ranks"
        )

    def look(self) -> bool:
        """Whether it has ended by now (then `exit_code` is set); leaves it unreaped."""
        if self.exit_code is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        result = os.waitid(os.P_PID, self.pid, options)
        if result is None:
            return False
        self._note_end(result)
        return True

    def reap(self) -> None:
        """Wait for its end and let go of its pid. No `send` after this."""
        if self.exit_code is None:
            result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            assert result is not None, "a wait without WNOHANG"
            self._note_end(result)
        self._process.wait()

    def _note_end(self, result: os.waitid_result) -> None:
        self.ended_at = time.monotonic()
        by_exit = result.si_code == os.CLD_EXITED
        self.exit_code = result.si_status if by_exit else -result.si_status

    def send(self, number: int, to_group: bool) -> None:
        """Send it a signal; `to_group`: also to the processes that it has started."""
        # Gone, or only children that belong to another user are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if to_group:
                # A rank that was just forked may be on its way to a group of its own.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, number)
                    return
            os.kill(self.pid, number)

    def close_streams(self) -> None:
        """Stop reading its output."""
        for stream in self.streams:
            stream.close()

    def stderr_tail(self) -> str:
        """The end of what it wrote to stderr so far."""
        is_on_console = self._spec.logs.to_console(self.local_rank, Std.ERR)
        if is_on_console or not self.stderr_path:
            return self._tail.text()  # a log may be full
        with open(self.stderr_path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(self._stderr_start, size - _TAIL_BYTES))
            return file.read().decode(errors="replace")

    def _environment(self, mark: str, screen: Screen) -> dict[str, str]:
        spec, local_rank = self._spec, self.local_rank
        environment = spec.environment(local_rank, self._attempt, mark, os.environ)
        prefix = spec.line_prefix(local_rank)
        if spec.logs.to_console(local_rank, Std.OUT):
            for name, value in screen.terminal_environment(prefix).items():
                environment.setdefault(name, value)
        return environment

    def _open(self, std: Std, screens: Mapping[Std, Screen], given: list[int]) -> int:
        """Make one of its streams; returns what the process gets."""
        logs, rank = self._spec.logs, self.local_rank
        prefix = self._spec.line_prefix(rank)
        screen, say = screens[std], screens[Std.ERR].say
        on_console = logs.to_console(rank, std)
        log = self._open_log(std, say) if logs.to_file(rank, std) else None
        if log is not None and not on_console:
            given.append(os.dup(log.fileno()))
            log.close()
            return given[-1]
        sinks: list[_Sink] = []
        if on_console:
            sinks.append(RankOutput(screen, self.rank, screen.is_live, prefix))
        if log is not None:
            sinks.append(log)
        words = self._spec.filters.get(std)
        if words and logs.is_teed(rank, std):
            path = self._spec.filtered_file(std, self._attempt)
            sinks.append(FilteredLog(LogFile(path, say), prefix, words))
        if std is Std.ERR:
            sinks.append(self._tail)
        ours, theirs = os.pipe()
        given.append(theirs)
        self.streams.append(Stream(ours, sinks))
        return theirs

    def _open_log(self, std: Std, say: Callable[[str], None]) -> LogFile:
        name = "stdout.log" if std is Std.OUT else "stderr.log"
        folder = self._spec.log_directory(self.local_rank, self._attempt)
        log = LogFile(os.path.join(folder, name), say)
        if std is Std.ERR:
            self.stderr_path, self._stderr_start = log.path, log.start
        return log
