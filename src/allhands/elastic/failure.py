"""Why a job ended: which rank failed first, with what, and the lines that say so.

A rank that only noticed that another one failed (`RankFailedError`) is never named as
the cause while a better candidate is there.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from allhands.elastic.exception_text import Raised, last_line, parse_exception
from allhands.errors import RankFailedError

__all__ = ["Failure", "first_failure", "report", "shell_code", "signal_name"]

# Raised because of what happened on another rank.
_SECONDARY = RankFailedError.__name__
_MESSAGE_LINES = 5
_LINE_LENGTH = 400


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 99` where there is no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def shell_code(exit_code: int) -> int:
    """A process's status as a shell gives it: 128 + number for a signal (negative)."""
    return exit_code if exit_code >= 0 else 128 - exit_code


@dataclass(frozen=True)
class Failure:
    """One rank that did not end well."""

    rank: int
    local_rank: int
    host: str
    pid: int
    exit_code: int
    """As `subprocess` has it: negative is the signal that ended it."""
    elapsed: float
    """Seconds from the rank's start to its end."""
    stderr: str
    """The end of what it wrote there, up to the moment when the launcher stopped it."""
    stderr_path: str = ""
    """The file that has all of it, if one was asked for."""
    was_stopped: bool = False
    """Whether the launcher had told it to stop before it ended."""
    oom_kills: int = 0
    """Processes that the kernel killed here for lack of memory during the run."""

    @property
    def raised(self) -> Raised | None:
        """The exception that its stderr tells of."""
        return parse_exception(self.stderr)

    @property
    def is_secondary(self) -> bool:
        """Whether it only followed from another rank's failure."""
        raised = self.raised
        return raised is not None and raised.type.rpartition(".")[2] == _SECONDARY

    def cause(self) -> str:
        """What ended it, without where."""
        if self.exit_code < 0 and not self.was_stopped:
            return f"killed by {signal_name(-self.exit_code)}"
        raised = self.raised
        if raised is not None and (self.exit_code == 1 or self.was_stopped):
            return f"{raised.type}: {raised.message}" if raised.message else raised.type
        return f"exit code {self.exit_code}"


def first_failure(failures: Sequence[Failure]) -> Failure:
    """The one to name; `failures` are in the order in which the ranks ended."""

    def unlikely(failure: Failure) -> tuple[bool, bool]:
        return failure.is_secondary, failure.was_stopped

    candidates = [f for f in failures if not f.was_stopped or f.raised is not None]
    return min(candidates or failures, key=unlikely)


def report(
    failures: Sequence[Failure], num_stopped: int, done: Sequence[int] = ()
) -> list[str]:
    """The lines (at most 15) that name the first failure and count the others.

    Args:
        failures: ranks that failed, in the order in which they ended.
        num_stopped: ranks that the launcher stopped because of them.
        done: ranks that ended on their own, with exit code 0.
    """
    first = first_failure(failures)
    lines = _headline(first)
    lines += [f"  {line}" for line in _details(first)]
    place = f"host {first.host}, pid {first.pid}, local rank {first.local_rank}"
    lines.append(f"  on {place}; it ran for {first.elapsed:.1f} s")
    if first.stderr_path:
        lines.append(f"  its stderr: {first.stderr_path}")
    if first.is_secondary and done:
        lines.append(f"  ended before it, with exit code 0: rank {_some(done)}")
    others = [f for f in failures if f is not first and not f.was_stopped]
    if others:
        ranks = _some([f"{f.rank} ({_short(f)})" for f in others])
        lines.append(f"  {len(others)} more failed after it: rank {ranks}")
    if num_stopped:
        noun = "other" if num_stopped == 1 else "others"
        lines.append(f"  {num_stopped} {noun} stopped because of rank {first.rank}")
    return [line[:_LINE_LENGTH] for line in lines]


def _headline(first: Failure) -> list[str]:
    head, *rest = first.cause().split("\n")
    lines = [f"allhands run: rank {first.rank} failed: {head}"]
    rest = [line for line in rest if line.strip()]
    lines += [f"    {line}" for line in rest[:_MESSAGE_LINES]]
    if len(rest) > _MESSAGE_LINES:
        lines[-1] = f"    ... ({len(rest) - _MESSAGE_LINES + 1} more lines above)"
    return lines


def _details(first: Failure) -> list[str]:
    """Where it happened, and what is known beyond the cause."""
    raised = first.raised
    lines = []
    if first.exit_code == -signal.SIGKILL:
        lines.append(_who_sent_sigkill(first))
    if raised is not None and raised.where is not None:
        lines.append(f"at {raised.where}")
    is_said = raised is not None and (first.exit_code == 1 or first.was_stopped)
    if raised is not None and not is_said:
        lines.append(f"last exception on its stderr: {_short(first)}")
    elif raised is None and last_line(first.stderr):
        lines.append(
            f"no traceback; last line on its stderr: {last_line(first.stderr)}"
        )
    elif raised is None:
        lines.append("no traceback: its stderr says nothing")
    return lines


def _who_sent_sigkill(first: Failure) -> str:
    if first.oom_kills:
        count = first.oom_kills
        noun = "process" if count == 1 else "processes"
        return f"out of memory (OOM): the kernel killed {count} {noun} here meanwhile"
    return (
        "not sent by the launcher, and the kernel counted no out-of-memory (OOM) kill"
    )


def _some(ranks: Sequence[object]) -> str:
    return ", ".join(map(str, ranks[:4])) + (", ..." if len(ranks) > 4 else "")


def _short(failure: Failure) -> str:
    """Exception type and the first line of its message, or the cause."""
    raised = failure.raised
    if raised is None:
        return failure.cause()
    head = raised.message.split("\n")[0]
    head = head if len(head) <= 80 else f"{head[:80]}..."
    return f"{raised.type}: {head}" if head else raised.type
