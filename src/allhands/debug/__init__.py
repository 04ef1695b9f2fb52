"""What helps to find out what a program of many ranks is doing."""

from __future__ import annotations

from allhands.debug.level import (
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from allhands.debug.on_demand import faults as faults
from allhands.debug.pause import breakpoint
from allhands.debug.record import dump as dump
from allhands.debug.region import record_comm
from allhands.debug.reporter import listen as _listen
from allhands.debug.waiting import OperationStats as OperationStats
from allhands.debug.waiting import stats as stats

__all__ = [
    "breakpoint",
    "get_debug_level",
    "record_comm",
    "set_debug_level",
    "set_debug_level_from_env",
]

_listen()
