"""What the kernel tells of a process: whether it runs, and how much CPU it has had."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

__all__ = ["ProcessState", "process_state", "seconds_without_cpu"]

_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessState(NamedTuple):
    """A process at one moment."""

    letter: str
    """`R` runs, `S` sleeps, `T` and `t` stopped, `Z` and `X` ended; see proc(5)."""
    parent: int
    """The process that started it, or took it over."""
    cpu_seconds: float
    """That all its threads have had so far."""
    start: int
    """When it began: tells it from a later one with the same number."""

    @property
    def is_stopped(self) -> bool:
        """By a signal or a debugger."""
        return self.letter in "Tt"

    @property
    def has_ended(self) -> bool:
        """It is there only until its parent asks for its end."""
        return self.letter in "ZXx"


def process_state(pid: int) -> ProcessState | None:
    """None: there is no such process."""
    with (
        suppress(OSError, ValueError, IndexError),
        open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file,
    ):
        told = file.read().rpartition(")")[2].split()  # names may have spaces
        cpu = (int(told[11]) + int(told[12])) / _TICKS
        return ProcessState(told[0], int(told[1]), cpu, int(told[19]))
    return None


def seconds_without_cpu(pid: int | None = None) -> float:
    """How long a thread has waited for a CPU; 0: it is unknown.

    Args:
        pid: the process whose main thread it is; None: it is the calling thread.
    """
    thread = "thread-self" if pid is None else str(pid)
    with (
        suppress(OSError, ValueError, IndexError),
        open(f"/proc/{thread}/schedstat", encoding="ascii") as file,
    ):
        return int(file.read().split()[1]) / 1e9
    return 0.0
