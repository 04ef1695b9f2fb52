"""Whom: for which ranks a rank waits in a collective, depending on its role.

If each rank gets data of each other rank, all need all. Otherwise ranks need only the
root if it gives data, or no rank if it takes data. In a prefix operation a rank needs
only the ranks before it. So a late rank does not hold up every other rank, and is not
to blame for everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

__all__ = ["Whom", "awaited_in", "end_together", "needed_in"]

_FOR_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_FROM_THE_ROOT = ("broadcast", "scatter")
_TO_THE_ROOT = ("reduce", "gather")
_FROM_LOWER_RANKS = ("scan", "exscan")


class Whom(Enum):
    """A set of ranks of a group, as one of them sees it."""

    ALL = auto()
    ROOT = auto()
    LOWER = auto()
    """The ranks before it."""
    NOBODY = auto()

    def among(self, ranks: Sequence[int], rank: int, root: int | None) -> Sequence[int]:
        """Return which of a group's `ranks` these are; ALL includes `rank` itself."""
        if self is Whom.ALL:
            return ranks
        if self is Whom.ROOT:
            return () if root is None else (root,)
        return ranks[: ranks.index(rank)] if self is Whom.LOWER else ()


def end_together(op: str) -> bool:
    """Return whether no rank leaves the collective before all have come."""
    return op.startswith(_FOR_ALL)  # also other forms: all_gather_single


def needed_in(op: str, is_root: bool) -> Whom:
    """Return the ranks that must come before a rank, or the root, can leave."""
    if end_together(op):
        return Whom.ALL
    if op.startswith(_FROM_THE_ROOT):
        return Whom.NOBODY if is_root else Whom.ROOT
    if op.startswith(_TO_THE_ROOT):
        return Whom.ALL if is_root else Whom.NOBODY
    return Whom.LOWER if op.startswith(_FROM_LOWER_RANKS) else Whom.NOBODY


def awaited_in(op: str, is_root: bool) -> Whom:
    """Return the ranks for which a rank that is still in the collective may wait.

    It is `needed_in`; in addition, a root that gives data waits for all to take it.
    """
    needed = needed_in(op, is_root)
    if needed is Whom.NOBODY and not op.startswith(_TO_THE_ROOT):
        return Whom.ALL
    return needed
