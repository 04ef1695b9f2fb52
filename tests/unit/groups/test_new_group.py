"""Groups of some of the ranks: who makes them, what they inherit, what they refuse."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks
from harness.worlds import total


def test_groups_have_their_own_ranks():
    def body(rank):
        group = dist.new_group([2, 0], group_desc="evens")
        if rank == 1:
            return group
        assert (group.group_name, group.group_desc) == ("1", "evens")
        assert dist.get_process_group_ranks(group) == [0, 2]
        assert dist.get_rank(group) == dist.get_group_rank(group, rank) == rank // 2
        assert dist.get_global_rank(group, 1) == 2
        assert dist.get_world_size(group) == 2
        assert dist.get_pg_count() == 2
        return total(group)

    assert run_ranks(3, body) == [2, dist.GroupMember.NON_GROUP_MEMBER, 2]


def test_sort_ranks_false_keeps_the_order():
    def body(rank):
        group = dist.new_group([2, 0, 1], sort_ranks=False)
        gathered = [np.zeros(1, int) for _ in range(3)]
        dist.all_gather(gathered, np.array([rank]), group=group)
        return [int(part[0]) for part in gathered]

    assert run_ranks(3, body) == [[2, 0, 1]] * 3


def test_ranks_may_be_any_integers():
    assert run_ranks(2, lambda rank: total(dist.new_group(np.arange(2)))) == [1, 1]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([0, 0], r"must not contain duplicate entries, got \[0, 0\]"),
        ([5], r"Rank 5 is out of range. Valid ranks are 0 to 1 \(world_size=2\)"),
        ([-1], "Rank -1 is out of range"),
        ([0, 1, 2], "world size should be less or equal to the world size set by init"),
        ([], "must not be empty"),
    ],
)
def test_new_group_refuses(ranks, message):
    def body(rank):
        with pytest.raises(ValueError, match=message):
            dist.new_group(ranks)
        return total(dist.new_group())  # nothing was counted

    assert run_ranks(2, body) == [1, 1]


@pytest.mark.parametrize("ranks", [0, "01", [0.0]])
def test_ranks_must_be_integers(ranks):
    def body(rank):
        with pytest.raises(TypeError, match="ranks must be a list of ints, got"):
            dist.new_group(ranks)

    run_ranks(1, body)


def test_a_group_inherits_the_worlds_timeout():
    def body(rank):
        assert dist.new_group().timeout == timedelta(seconds=7)
        assert dist.new_group(timeout=timedelta(1)).timeout == timedelta(days=1)

    run_ranks(1, body, timeout=7)


def test_members_alone_can_make_a_group():
    def body(rank):
        if rank == 0:
            return None
        for _ in range(rank):  # different histories
            dist.new_group([rank], use_local_synchronization=True)
        group = dist.new_group([1, 2], use_local_synchronization=True)
        again = dist.new_group([1, 2], use_local_synchronization=True)
        assert group.group_name != again.group_name
        return total(group), total(again), group.group_name, again.group_name

    results = run_ranks(3, body)
    assert results[1] == results[2]
    assert results[1][:2] == (3, 3)


def test_local_synchronization_gives_non_members_none():
    def body(rank):
        made = dist.new_group([1], use_local_synchronization=True)
        dist.new_group([0, 1])
        return made is None

    assert run_ranks(2, body) == [True, False]


def test_local_groups_do_not_shift_the_names_of_others():
    def body(rank):
        if rank == 1:
            dist.new_group([1], use_local_synchronization=True)
        return dist.new_group().group_name

    assert run_ranks(2, body) == ["1", "1"]


def test_not_in_the_group():
    outside = dist.GroupMember.NON_GROUP_MEMBER

    def body(rank):
        group = dist.new_group([0])
        if rank == 0:
            return
        assert group == outside == -100
        assert (dist.get_rank(group), dist.get_world_size(group)) == (-1, -1)
        assert dist.destroy_process_group(group) is None
        for ask in (dist.get_backend, dist.get_backend_config):
            with pytest.raises(ValueError, match="Invalid process group specified"):
                ask(group)
        with pytest.raises(ValueError, match="Invalid process group specified"):
            dist.get_process_group_ranks(group)
        with pytest.raises(ValueError, match="process group"):
            dist.get_group_rank(group, 0)

    run_ranks(2, body)


def test_what_is_no_group_is_refused():
    def body(rank):
        for thing in (5, "x", object()):
            with pytest.raises(ValueError, match="is not registered, please create"):
                dist.get_rank(thing)
        with pytest.raises(ValueError, match="Invalid process group specified"):
            dist.destroy_process_group("x")

    run_ranks(1, body)


def test_rank_translation():
    def body(rank):
        world = dist.group.WORLD
        assert dist.get_group_rank(world, 99) == 99
        assert dist.get_global_rank(world, 99) == 99
        group = dist.new_group([1])
        if rank == 1:
            with pytest.raises(
                ValueError, match="Global rank 0 is not part of group <"
            ):
                dist.get_group_rank(group, 0)
            with pytest.raises(ValueError, match="Group rank 1 is not part of group <"):
                dist.get_global_rank(group, 1)

    run_ranks(2, body)


def test_the_groups_store_is_its_own():
    def body(rank):
        group = dist.new_group([0, 1])
        store = group.get_group_store()
        store.set(f"{rank}", "here")
        store.wait(["0", "1"])
        world_store = dist.group.WORLD.get_group_store()
        assert not world_store.check(["0"])
        return isinstance(store, dist.PrefixStore)

    assert run_ranks(2, body) == [True, True]


def test_an_array_is_no_group():
    def body(rank):
        with pytest.raises(ValueError, match=r"Group \[1. 1.\] is not registered"):
            dist.barrier(np.ones(2))

    run_ranks(2, body)
