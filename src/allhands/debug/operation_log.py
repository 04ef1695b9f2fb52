"""OperationLog: logs the operations of a rank, either those that fail or all.

It watches only if the level asks for it: from `debug` on it logs failing operations,
and with `trace` the begin and end of each operation.
"""

from __future__ import annotations

import itertools
import os
import time

from allhands import settings
from allhands.backends.observer import OperationRecord
from allhands.groups.world import current
from allhands.groups.world_listeners import when_this_is_a_rank
from allhands.rendezvous.log import LogLevel, is_said, say

__all__ = ["OperationLog", "listen", "watch_if_asked"]

_SUBSYSTEM = "operations"
_SETTINGS = "settings"


class OperationLog:
    """An observer that logs the operations. Thread-safe.

    All worlds share one, because the rank and world of the process may change.
    """

    def __init__(self) -> None:
        self._tokens = itertools.count()
        self._begun: dict[int, tuple[int, str, float]] = {}

    def before(self, operation: OperationRecord) -> int:
        """See `Observer.before`."""
        rank, text = current().fault_point.rank, _text(operation)
        token = next(self._tokens)
        self._begun[token] = rank, text, time.monotonic()
        say(LogLevel.TRACE, _SUBSYSTEM, rank, f"{text} begins")
        return token

    def after(self, token: int, error: BaseException | None) -> None:
        """See `Observer.after`."""
        rank, text, began = self._begun.pop(token)
        took = (time.monotonic() - began) * 1000
        if error is None:
            ended = f"{text} has ended after {took:.3f} ms"
            say(LogLevel.TRACE, _SUBSYSTEM, rank, ended)
            return
        [why, *_] = str(error).splitlines() or [""]
        failed = f"{text} failed after {took:.3f} ms: {type(error).__name__}: {why}"
        say(LogLevel.DEBUG, _SUBSYSTEM, rank, failed)


_log = OperationLog()


def listen() -> None:
    """Let each rank that this process becomes log what the level asks for."""
    when_this_is_a_rank(_begin)


def watch_if_asked() -> None:
    """Begin or stop to watch this rank's operations, according to the level."""
    world = current()
    is_asked = is_said(LogLevel.DEBUG)
    if is_asked and world.observer is None:
        world.observe(_log)
    elif world.observer is _log and not is_asked:
        world.observe(None)


def _begin() -> None:
    watch_if_asked()
    rank = current().fault_point.rank
    for setting in settings.ALL:
        value = os.environ.get(setting.name, "")
        shown = "(not shown)" if setting.is_secret else value
        if value:
            say(LogLevel.DEBUG, _SETTINGS, rank, f"{setting.name}={shown}")
    if rank == 0:
        for name, why in settings.unknown().items():
            say(LogLevel.WARNING, _SETTINGS, rank, f"environment variable {name} {why}")


def _text(operation: OperationRecord) -> str:
    number = f" #{operation.sequence}" if operation.sequence else ""
    array = f", {operation.count} x {operation.dtype}" if operation.dtype else ""
    where = f" on group {operation.group!r}" if operation.group else ""
    return f"{operation.op}{number}{where}{array}"
