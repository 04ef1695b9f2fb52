"""The flight memory of this process: flight records that `allhands top` reads.

Each process has one, made on first use. A forked child does not inherit its parent's;
it makes its own.
"""

from __future__ import annotations

import os
import threading

from allhands import _C

__all__ = ["here"]

_lock = threading.Lock()
_made: list[_C.FlightMemory | None] = []


def here() -> _C.FlightMemory | None:
    """Return this process's flight memory; None without descriptor or memory."""
    with _lock:
        if not _made or _made[0] is None:
            _made[:] = [_C.FlightMemory.create()]
        return _made[0]


def _leave_to_parent() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it
    for memory in _made:
        if memory is not None:
            memory.leave_to_parent()
    _made.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
