"""The log of a rank on stderr: lines that begin with its rank and a subsystem.

    allhands: [rank1] groups: made group 'dp' of ranks [1, 3]

The level says how much a rank writes. It is that of ALLHANDS_LOG, or else of torch's
two variables, and is read before each line. Without any of these, a program without
problems writes nothing. Any thread may use the log.
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
    """How much a rank writes; each level includes the lines of lower levels."""

    ERROR = 0
    """Functions that no longer work while the program continues; requested reports."""
    WARNING = 1
    """Long waits and for whom; actions on demand; unsafe setups."""
    INFO = 2
    """That the ranks have met, and the making and ending of groups."""
    DEBUG = 3
    """Settings, and operations that fail."""
    TRACE = 4
    """Every operation."""


_TORCHS = {
    **{"INFO": LogLevel.INFO, "WARNING": LogLevel.WARNING, "ERROR": LogLevel.ERROR},
    **{"0": LogLevel.INFO, "1": LogLevel.WARNING, "2": LogLevel.ERROR},
    **{"FATAL": LogLevel.ERROR, "3": LogLevel.ERROR},
}
_debug_level: DebugLevel | None = None


def follow(level: DebugLevel) -> None:
    """Use this debug level, which the program has set, instead of the environment."""
    global _debug_level
    _debug_level = level


def effective_level() -> LogLevel:
    """Return the current level.

    If torch's variables have values that torch does not know, they count as unset.

    Raises:
        ValueError: ALLHANDS_LOG is not a level.
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
    """Return whether lines of this level are written."""
    return level <= effective_level()


def say(level: LogLevel, subsystem: str, rank: int, text: str) -> None:
    """Write a line if its level is enabled; `rank` is the world rank, -1 if unknown.

    If stderr cannot be written, the line is dropped without an error. If the level
    becomes invalid while the program runs, it counts as WARNING.
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
    """Return the beginning of such a line."""
    return f"allhands: [rank{rank if rank >= 0 else '?'}] {subsystem}: "
