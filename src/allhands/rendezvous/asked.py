"""Asked: the backend that a rank asks for, compared when the ranks of a world meet.

Ranks with different backends would wait for each other, each in its own library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from allhands.rendezvous.ranges import in_ranges

__all__ = ["NOTHING", "Asked", "disagreement"]


class Asked(NamedTuple):
    """What a rank asks for.

    Attributes:
        backend: the name or the "device:backend" pairs; empty if the rank leaves the
            choice to the package.
        is_usual: whether the package could choose the same, on this host or another.
    """

    backend: str = ""
    is_usual: bool = True

    def __str__(self) -> str:
        return repr(self.backend) if self.backend else "the default"


NOTHING = Asked()
"""What a rank asks for that leaves the choice to the package."""


def disagreement(asked: Mapping[int, Asked]) -> str:
    """Return which ranks ask for which backends; empty if one group serves them all."""
    ranks: dict[Asked, list[int]] = {}
    for rank, each in asked.items():
        ranks.setdefault(each, []).append(rank)
    named = [each for each in ranks if each.backend]
    has_default = len(named) < len(ranks)
    if len(named) <= 1 and not (has_default and named and not named[0].is_usual):
        return ""
    parts = [f"{_of(theirs)} for {each}" for each, theirs in ranks.items()]
    return f"the ranks ask for different backends: {', '.join(parts)}"


def _of(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {in_ranges(ranks)}"
