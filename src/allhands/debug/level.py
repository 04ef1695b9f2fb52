"""The debug level: how much information a program asks for.

The package stores the level for programs and backends that read it. If
TORCH_CPP_LOG_LEVEL is INFO, it is a part of the log's level. The native engine finds
mismatched calls at every level, at no cost, so no level adds a check.
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
    """Return the level, which is initially that of `set_debug_level_from_env`.

    Raises:
        ValueError: see `set_debug_level_from_env`, if no level was set before.

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

    The package stores it for programs and backends that read it. If
    `TORCH_CPP_LOG_LEVEL` is INFO, it also sets how much [the log](#the-log) contains.
    The native engine makes the same checks at every level.

    Raises:
        TypeError: `level` is not a `DebugLevel`.

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
        ValueError: the variable has another value.

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
