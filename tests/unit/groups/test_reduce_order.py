"""In which order a group reduces, and which groups have that of another."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands import settings
from harness.ranks import LIMIT, outcomes, run_ranks

RANK = dist.NativeOptions(reduce_order="rank")
ANY = dist.NativeOptions(reduce_order="any")


def run_in_order(size, pg_options, body):
    """`run_ranks` in a world with these options."""
    store = dist.HashStore()

    def enter(rank):
        dist.init_process_group(
            store=store, rank=rank, world_size=size, pg_options=pg_options
        )
        return body(rank)

    return run_ranks(size, enter, init=False)


def test_a_group_is_as_the_one_that_it_is_made_of():
    def body(rank):
        world = dist.group.WORLD
        pair, _ = dist.new_subgroups(2)
        other = dist.new_group(pg_options=ANY)
        of_other, _ = dist.new_subgroups(2, group=other)
        part = dist.split_group(other, [[0, 1, 2, 3]])
        own = dist.split_group(other, [[0, 1, 2, 3]], pg_options=RANK)
        again = dist.new_group(pg_options=dist.NativeOptions())
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        for group in (pair, other, of_other, part, own, again, mesh.get_group("a")):
            dist.all_reduce(np.ones(2), group=group)
        orders = [
            group.reduce_order
            for group in (world, pair, other, of_other, part, own, again)
        ]
        orders.append(mesh.get_group("a").reduce_order)
        if rank == 3:
            return orders
        shrunk = dist.shrink_group([3], group=other)
        dist.all_reduce(np.ones(2), group=shrunk)
        world = dist.shrink_group([3])
        dist.all_reduce(np.ones(2))
        return [*orders, shrunk.reduce_order, world.reduce_order]

    expected = ["rank", "rank", "any", "any", "any", "rank", "rank", "rank"]
    of_those_that_stay = [*expected, "any", "rank"]
    found = run_in_order(4, RANK, body)
    assert found == [of_those_that_stay] * 3 + [expected]


def test_a_merged_group_is_as_those_that_it_is_of():
    store = dist.HashStore()

    def body(thread):
        world, rank = divmod(thread, 2)
        dist.init_process_group(
            store=dist.PrefixStore(f"world{world}", store),
            rank=rank,
            world_size=2,
            pg_options=RANK,
        )
        limit = timedelta(seconds=LIMIT)
        merged = dist.group.WORLD.merge_remote_group(store, 4, limit)
        dist.all_reduce(np.ones(2), group=merged)
        return merged.reduce_order

    assert run_ranks(4, body, init=False) == ["rank"] * 4


def test_the_world_is_as_the_setting_says(monkeypatch):
    def orders(rank):
        return dist.group.WORLD.reduce_order, dist.new_group().reduce_order

    assert run_ranks(2, orders) == [("any", "any")] * 2
    monkeypatch.setenv("ALLHANDS_REDUCE_ORDER", "rank")
    assert run_ranks(2, orders) == [("rank", "rank")] * 2
    assert run_in_order(2, ANY, orders) == [("any", "any")] * 2


def test_an_order_that_is_none_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="must be 'any' or 'rank', got 'tree'"):
        dist.NativeOptions(reduce_order="tree")
    monkeypatch.setenv("ALLHANDS_REDUCE_ORDER", "tree")
    text = "ALLHANDS_REDUCE_ORDER is 'tree': it must be any or rank"
    with pytest.raises(ValueError, match=text):
        settings.reduce_order.get()
    with pytest.raises(ValueError, match=text):
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()


@pytest.mark.parametrize("count", [1, 100_000])
def test_ranks_with_different_orders_are_told_so(count):
    def body(rank):
        group = dist.new_group(pg_options=RANK if rank == 1 else None)
        dist.barrier(group)
        dist.all_reduce(np.ones(count, np.float32), group=group)

    for rank, error in enumerate(outcomes(3, body)):
        assert isinstance(error, dist.CollectiveMismatchError)
        assert error.ranks == ([0, 2] if rank == 1 else [1])
        assert f"all_reduce(float32, count {count}, SUM)" in str(error)
        assert f"all_reduce(float32, count {count}, SUM in rank order)" in str(error)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, g: dist.all_reduce(x, group=g),
        lambda x, g: dist.all_reduce(x, group=g, async_op=True).wait(),
        lambda x, g: dist.all_reduce_init(x, group=g)(),
        lambda x, g: dist.reduce(x, 0, group=g),
        lambda x, g: dist.reduce_scatter(x[:2], [x[2:4], x[4:6]], group=g),
        lambda x, g: dist.reduce_scatter_single(x[:2], x[2:6], group=g),
        lambda x, g: dist.scan(np.empty_like(x), x, group=g),
        lambda x, g: dist.exscan(np.empty_like(x), x, group=g),
        lambda x, g: g.allreduce_coalesced([x[:2], x[2:]]).wait(),
    ],
)
def test_every_reduction_has_the_order_of_its_group(call):
    def body(rank):
        group = dist.new_group(pg_options=RANK if rank == 1 else None)
        call(np.ones(6), group)

    for error in outcomes(2, body):
        assert isinstance(error, dist.CollectiveMismatchError)
        assert "in rank order" in str(error)
