"""CoalescingCommunicator: a communicator within a `_coalescing_manager` block.

It starts each operation, whether or not the caller asked for an asynchronous one, and
notes its `Work` for the end of the block. Other methods of the communicator are not
called here.
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
        """Start `call`; return its Work only if the caller asked for it."""
        work = self.communicator.submit(replace(call, async_op=True))
        if work is not None:  # a rank outside the group starts nothing
            self._works.append(work)
        return work if call.async_op else None
