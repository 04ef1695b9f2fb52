"""LateWaits: when a rank reports that a wait of its program in a store is long."""

from __future__ import annotations

from allhands import settings

__all__ = ["LateWaits"]


class LateWaits:
    """The long waits of one world; threads may share it.

    The next report takes twice as long, so that a program that often waits for long,
    as for work, does not fill the screen.
    """

    def __init__(self) -> None:
        self._factor = 1

    def is_due(self, waited: float, limit: float) -> bool:
        """Return whether a wait is to be reported; true once.

        Args:
            waited: its seconds so far.
            limit: how many it may take.
        """
        patience = settings.patience.get()
        if not 0 < patience < limit or waited < self._factor * patience:
            return False
        self._factor *= 2
        return True
