"""Why a job ended: how each rank failed, and which of them was the first.

A rank that only noticed that another one failed (`RankFailedError`) is never named as
the cause while a better candidate is there.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from allhands.elastic.exception_text import Raised, parse_exception
from allhands.errors import RankFailedError

__all__ = ["Failure", "first_failure", "shell_code", "signal_name"]

# Raised because of what happened on another rank.
_SECONDARY = RankFailedError.__name__


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
    ended_at: float = 0.0
    """When the rank ended, in seconds since the epoch."""

    @cached_property
    def raised(self) -> Raised | None:
        """The exception that its stderr tells of."""
        return parse_exception(self.stderr)

    @property
    def is_secondary(self) -> bool:
        """Whether it only followed from another rank's failure."""
        raised = self.raised
        return raised is not None and raised.name == _SECONDARY

    @property
    def is_by_exception(self) -> bool:
        """Whether the exception is what ended it, as far as the exit code tells."""
        if self.raised is None:
            return False
        return self.was_stopped or self.exit_code == 1

    @property
    def ending(self) -> str:
        """How the process ended."""
        if self.exit_code < 0:
            return f"killed by {signal_name(-self.exit_code)}"
        return f"exit code {self.exit_code}"


def first_failure(failures: Sequence[Failure]) -> Failure:
    """The one to name; `failures` are in the order in which the ranks ended."""

    def unlikely(failure: Failure) -> tuple[bool, bool]:
        return failure.is_secondary, failure.was_stopped

    candidates = [f for f in failures if not f.was_stopped or f.raised is not None]
    return min(candidates or failures, key=unlikely)
