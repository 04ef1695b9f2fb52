"""The place of a rank: its number among how many."""

from __future__ import annotations

__all__ = ["MOST_RANKS", "check_place"]

MOST_RANKS = 1 << 20
"""Rank 0 asks the store for a key of each rank at once, and it takes no more keys."""


def check_place(rank: int, world_size: int) -> None:
    """Refuse a rank or a number of ranks that cannot be.

    Raises:
        ValueError: one of them is out of range.
    """
    if world_size < 1:
        raise ValueError(f"world_size must be positive, got {world_size}")
    if world_size > MOST_RANKS:
        raise ValueError(f"world_size must be at most {MOST_RANKS}, got {world_size}")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be in [0, {world_size}), got {rank}")
