"""What a rank says on stderr: lines that begin with its rank and a subsystem.

    allhands: [rank1] groups: made group 'dp' of ranks [1, 3]

How much it says is a level, that of ALLHANDS_LOG, or else of torch's two variables,
read whenever there is something to say. Without any of these a program in which all
goes well says nothing. Any thread may use it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from enum import IntEnum

from allhands import settings
from allhands.options import DebugLevel

__all__ = ["LogLevel", "beginning", "effective_level", "follow", "is_said", "say"]


class LogLevel(IntEnum):
    """How much a rank says; each level has the lines of those before."""

    ERROR = 0
    """What does not work any more, though the program goes on; what was asked for."""
    WARNING = 1
    """Who is waited for, for long; what is done on demand; what is unsafe."""
    INFO = 2
    """That the ranks have met, and which groups come and go."""
    DEBUG = 3
    """What is set, and operations that fail."""
    TRACE = 4
    """Every operation."""


_TORCHS = {
    **{"INFO": LogLevel.INFO, "WARNING": LogLevel.WARNING, "ERROR": LogLevel.ERROR},
    **{"0": LogLevel.INFO, "1": LogLevel.WARNING, "2": LogLevel.ERROR},
    **{"FATAL": LogLevel.ERROR, "3": LogLevel.ERROR},
}
_debug_level: DebugLevel | None = None


def follow(level: DebugLevel) -> None:
    """The program has set this debug level; it counts in place of the environment."""
    global _debug_level
    _debug_level = level


def effective_level() -> LogLevel:
    """The level now.

    What torch's variables have that torch does not know counts as if they were unset.

    Raises:
        ValueError: ALLHANDS_LOG is no level.
    """
    own = settings.log.get()
    if own:
        return LogLevel[own.upper()]
    text = os.environ.get("TORCH_CPP_LOG_LEVEL", "").upper()
    torchs = _TORCHS.get(text, LogLevel.WARNING)
    if torchs is not LogLevel.INFO:
        return torchs
    debug = _debug_level
    if debug is None:
        name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper()
        debug = DebugLevel.__members__.get(name, DebugLevel.OFF)
    return LogLevel(torchs + debug)


def is_said(level: LogLevel) -> bool:
    """Whether a line of that level is said."""
    return level <= effective_level()


def say(level: LogLevel, subsystem: str, rank: int, text: str) -> None:
    """Say a line of that level, if it is to be said; `rank` of the world, -1: unknown.

    Nothing is raised where nobody can read it, and a level that cannot be read, set
    while the program runs, counts as WARNING.
    """
    try:
        limit = effective_level()
    except ValueError:
        limit = LogLevel.WARNING
    if level > limit:
        return
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{beginning(subsystem, rank)}{text}\n")
        sys.stderr.flush()


def beginning(subsystem: str, rank: int) -> str:
    """Of such a line."""
    return f"allhands: [rank{rank if rank >= 0 else '?'}] {subsystem}: "
