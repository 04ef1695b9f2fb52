"""A communicator seen from within a `_coalescing_manager` block: nothing waits there.

Each operation is started, whether its caller asked for that or not, and its `Work` is
noted for the end of the block. What is no operation does not come here.
"""

from __future__ import annotations

from dataclasses import replace

from allhands.backends.call import Call
from allhands.backends.communicator import Communicator
from allhands.backends.front import FrontCommunicator
from allhands.backends.work import Work

__all__ = ["CoalescingCommunicator"]


class CoalescingCommunicator(FrontCommunicator):
    """Stands in front of `communicator`; adds to `works`. For one thread."""

    def __init__(self, communicator: Communicator, works: list[Work]) -> None:
        super().__init__(communicator)
        self._works = works

    def submit(self, call: Call) -> Work | None:
        """Start `call`; its Work only where the caller asked for it."""
        work = self.communicator.submit(replace(call, async_op=True))
        if work is not None:  # a rank outside the group starts nothing
            self._works.append(work)
        return work if call.async_op else None
