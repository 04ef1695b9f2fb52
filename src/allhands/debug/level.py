"""The debug level: how much a program asks to be told.

It is kept and handed out, for programs and backends that look at it, and is part of the
log's level where TORCH_CPP_LOG_LEVEL is INFO. The native engine finds mismatched calls
at every level, at no cost, so no level makes it check more.
"""

from __future__ import annotations

import os

from allhands.debug.operation_log import watch_if_asked
from allhands.groups.world import current
from allhands.options import DebugLevel
from allhands.rendezvous import log

__all__ = ["get_debug_level", "set_debug_level", "set_debug_level_from_env"]

_VARIABLE = "TORCH_DISTRIBUTED_DEBUG"


def get_debug_level() -> DebugLevel:
    """The level that was set, at first that of `set_debug_level_from_env`.

    Raises:
        ValueError: as `set_debug_level_from_env`, where nothing was set before.

    Example:
        ```python
        if dist.get_debug_level() >= dist.DebugLevel.INFO:
            print("step", step, flush=True)
        ```
    """
    world = current()
    if world.debug_level is None:
        world.debug_level = _from_environment()
    return world.debug_level


def set_debug_level(level: DebugLevel) -> None:
    """Set the level of this process.

    It is kept for programs and backends that look at it. Where `TORCH_CPP_LOG_LEVEL` is
    INFO, it also says how much [the log](#the-log) has. The native engine checks the
    same at every level.

    Raises:
        TypeError: `level` is no `DebugLevel`.

    Example:
        ```python
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        ```
    """
    if not isinstance(level, DebugLevel):
        raise TypeError(
            f"set_debug_level(): level must be a DebugLevel, got {level!r}; write "
            f"DebugLevel.INFO"
        )
    _set(level)


def set_debug_level_from_env() -> None:
    """Set the level that TORCH_DISTRIBUTED_DEBUG names: OFF (or unset), INFO, DETAIL.

    Raises:
        ValueError: it has another value.

    Example:
        ```python
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
        dist.set_debug_level_from_env()
        ```
    """
    _set(_from_environment())


def _set(level: DebugLevel) -> None:
    current().debug_level = level
    log.follow(level)
    watch_if_asked()


def _from_environment() -> DebugLevel:
    text = os.environ.get(_VARIABLE) or DebugLevel.OFF.name
    try:
        return DebugLevel[text.upper()]
    except KeyError:
        raise ValueError(
            f"The value of {_VARIABLE} must be OFF, INFO, or DETAIL. It is {text!r}"
        ) from None
