"""A communicator seen from within a `_coalescing_manager` block: nothing waits there.

Every collective is posted, whether its caller asked for that or not, and the `Work` is
noted for the end of the block; so is that of `isend` and `irecv`.
"""

from __future__ import annotations

from typing import Any

from allhands.backends.communicator import Communicator
from allhands.backends.work import Work

__all__ = ["Posting"]

_STARTED = {"isend", "irecv"}
_UNCHANGED = {
    *("set_timeout", "send", "recv", "sendrecv", "empty_shared", "peer_array"),
    *("persistent", "abort", "note_failure", "close"),
}


class Posting:
    """Stands for `communicator`; adds to `works`."""

    def __init__(self, communicator: Communicator, works: list[Work]) -> None:
        self._communicator = communicator
        self._works = works

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._communicator, name)
        if name in _UNCHANGED:
            return operation

        def post(*arguments: Any) -> Work | None:
            if name in _STARTED:
                asked, work = True, operation(*arguments)
            else:
                *others, asked = arguments
                work = operation(*others, True)
            self._works.append(work)
            return work if asked else None

        return post
