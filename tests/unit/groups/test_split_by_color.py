"""split_group_by_color; ranks are threads."""

import numpy as np
import pytest

import allhands as dist
from allhands.groups.world import World, use
from harness.ranks import run_ranks
from harness.worlds import total


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_split_by_color_and_key(size):
    rng = np.random.default_rng(size)
    colors = [None if c == 3 else int(c) - 1 for c in rng.integers(0, 4, size)]
    keys = [int(key) for key in rng.integers(-2, 3, size)]

    def body(rank):
        group = dist.split_group_by_color(colors[rank], keys[rank])
        if group is None:
            return None
        everybody = [None] * group.size()
        dist.all_gather_object(everybody, rank, group=group)
        assert everybody == dist.get_process_group_ranks(group)
        assert everybody[group.rank()] == rank
        return everybody

    def expected(rank):
        alike = [r for r in range(size) if colors[r] == colors[rank]]
        return sorted(alike, key=lambda r: keys[r])  # sorted() is stable

    assert run_ranks(size, body) == [
        None if colors[rank] is None else expected(rank) for rank in range(size)
    ]


def test_split_by_color_of_a_group_by_its_own_ranks():
    def body(rank):
        odd = dist.new_group([5, 3, 1], sort_ranks=False)
        if rank % 2 == 0:
            return None
        pair = dist.split_group_by_color(int(rank == 1), parent_pg=odd, group_desc="x")
        again = dist.split_group_by_color(2**63 - 1, -(2**63), parent_pg=odd)
        assert dist.get_process_group_ranks(again) == [5, 3, 1]
        assert (pair.group_desc, total(again)) == ("x", 9)
        return dist.get_process_group_ranks(pair)

    assert run_ranks(6, body) == [None, [1], None, [5, 3], None, [5, 3]]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("red",), TypeError, "color must be an int, got 'red'"),
        (("",), TypeError, "color must be an int, got ''"),
        ((0.0,), TypeError, r"color must be an int, got 0\.0"),
        ((0, 0.5), TypeError, r"key must be an int, got 0\.5"),
        ((2**63,), ValueError, r"color must be in \[-2\*\*63, 2\*\*63\), got 92233"),
    ],
)
def test_a_color_or_key_that_is_none(arguments, error, text):
    def body(rank):
        with pytest.raises(error, match=f"split_group_by_color: {text}"):
            dist.split_group_by_color(*arguments)
        assert total(dist.split_group_by_color(0)) == 1

    run_ranks(2, body)


def test_each_rank_of_a_world_of_pretence_has_the_color_of_this_one():
    with use(World()):
        dist.init_process_group("fake", store=dist.HashStore(), rank=1, world_size=3)
        try:
            for color in (5, 0, -3):
                group = dist.split_group_by_color(color)
                assert group.size() == 3
            assert dist.split_group_by_color(None) is None
        finally:
            dist.destroy_process_group()
