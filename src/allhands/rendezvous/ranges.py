"""Ranks as texts give them, short also where they are many."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["in_ranges"]


def in_ranges(ranks: Iterable[int]) -> str:
    """The ranks as "[0, 2-38, 41]"; two in a row are no range.

    Args:
        ranks: in the order in which they are told.
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
