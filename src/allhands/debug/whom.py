"""Whom: for which ranks a rank waits in a collective, by what it does there.

All need all where each has something of each; others only the root, where that gives,
or nobody, where it takes; a prefix only those before. So who is late does not keep
everybody, and is not to be blamed for everything.
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
    """Ranks of a group, as one of them sees it."""

    ALL = auto()
    ROOT = auto()
    LOWER = auto()
    """Those before it."""
    NOBODY = auto()

    def among(self, ranks: Sequence[int], rank: int, root: int | None) -> Sequence[int]:
        """Which of the `ranks` of a group; with `rank` itself where all are."""
        if self is Whom.ALL:
            return ranks
        if self is Whom.ROOT:
            return () if root is None else (root,)
        return ranks[: ranks.index(rank)] if self is Whom.LOWER else ()


def end_together(op: str) -> bool:
    """Whether nobody leaves the collective before all have come."""
    return op.startswith(_FOR_ALL)  # with its other forms: all_gather_single


def needed_in(op: str, is_root: bool) -> Whom:
    """Without whose coming a rank, or the root, does not leave the collective."""
    if end_together(op):
        return Whom.ALL
    if op.startswith(_FROM_THE_ROOT):
        return Whom.NOBODY if is_root else Whom.ROOT
    if op.startswith(_TO_THE_ROOT):
        return Whom.ALL if is_root else Whom.NOBODY
    return Whom.LOWER if op.startswith(_FROM_LOWER_RANKS) else Whom.NOBODY


def awaited_in(op: str, is_root: bool) -> Whom:
    """For whom a rank may be waiting that is still in the collective.

    As for `needed_in`, and a root that gives, for all to take it.
    """
    needed = needed_in(op, is_root)
    if needed is Whom.NOBODY and not op.startswith(_TO_THE_ROOT):
        return Whom.ALL
    return needed
