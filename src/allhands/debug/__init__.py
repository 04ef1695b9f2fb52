"""Functions that help to find out what a program of many ranks is doing."""

from __future__ import annotations

from allhands.debug.equality import check_equal as check_equal
from allhands.debug.level import (
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from allhands.debug.on_demand import faults as faults
from allhands.debug.operation_log import listen as _log_operations
from allhands.debug.pause import breakpoint
from allhands.debug.prometheus import prometheus as prometheus
from allhands.debug.record import dump as dump
from allhands.debug.region import record_comm
from allhands.debug.reporter import listen as _listen
from allhands.debug.server import serve_if_asked as _serve_if_asked
from allhands.debug.server import start_debug_server as start_debug_server
from allhands.debug.server import stop_debug_server as stop_debug_server
from allhands.debug.tracer import trace_if_asked as _trace_if_asked
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
_serve_if_asked()
_log_operations()
_trace_if_asked()
