"""Texts for ranks that are short even for many ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

__all__ = ["in_ranges", "in_world"]

_MOST_PARTS = 12


def in_ranges(ranks: Iterable[int]) -> str:
    """Return the ranks as "[0, 2-38, 41]"; two in a row are not a range.

    Args:
        ranks: the ranks, in the order of the text.
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
        for run in runs
    ]
    return f"[{', '.join(texts)}]"


def in_world(ranks: Sequence[int]) -> str:
    """Return the text after a group's name in errors: " (ranks 1, 3 of the world)".

    It is empty if the ranks have the same numbers in the group. For many ranks it has
    the first ones, and also the last one if all are at the same distance.
    """
    if list(ranks) == list(range(len(ranks))):
        return ""
    parts = in_ranges(ranks)[1:-1].split(", ")
    if len(parts) > _MOST_PARTS:
        is_row = len({after - rank for rank, after in pairwise(ranks)}) == 1
        parts = (
            [*parts[:3], "...", parts[-1]] if is_row else [*parts[:_MOST_PARTS], "..."]
        )
    return f" (rank{'s' * (len(ranks) > 1)} {', '.join(parts)} of the world)"
