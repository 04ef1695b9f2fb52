"""Ranks as texts give them."""

import pytest

from allhands.rendezvous.ranges import in_ranges, in_world


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], "[]"),
        ([3], "[3]"),
        ([0, 1], "[0, 1]"),
        ([0, 1, 2], "[0-2]"),
        ([*range(39), 41, 43, 44], "[0-38, 41, 43, 44]"),
        ([3, 2, 1], "[3, 2, 1]"),
    ],
)
def test_runs_of_three_and_more_are_ranges(ranks, text):
    assert in_ranges(ranks) == text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ([0], ""),
        (range(8), ""),
        ([3], " (rank 3 of the world)"),
        ([1, 3], " (ranks 1, 3 of the world)"),
        ([1, 0], " (ranks 1, 0 of the world)"),
        (range(64, 128), " (ranks 64-127 of the world)"),
        (
            range(1, 24, 2),
            f" (ranks {', '.join(map(str, range(1, 24, 2)))} of the world)",
        ),
        (range(1, 512, 2), " (ranks 1, 3, 5, ..., 511 of the world)"),
        (
            [i * i for i in range(20)],
            " (ranks 0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, ... of the world)",
        ),
    ],
)
def test_ranks_that_have_other_numbers_in_the_world_are_told(ranks, text):
    assert in_world(ranks) == text
