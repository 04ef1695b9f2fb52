"""Ranks as texts give them."""

import pytest

from allhands.rendezvous.ranges import in_ranges


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
