"""Several groups at once, groups from groups, with ranks as threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.ranks import LIMIT, outcomes, run_ranks
from harness.worlds import total

OUT = dist.GroupMember.NON_GROUP_MEMBER


def test_new_subgroups_divides_the_world():
    def body(rank):
        mine, groups = dist.new_subgroups(2, group_desc="pair")
        assert groups == ([mine, OUT] if rank < 2 else [OUT, mine])
        assert (mine.group_desc, mine.group_name) == ("pair", str(1 + rank // 2))
        return total(mine), dist.get_process_group_ranks(mine)

    assert run_ranks(4, body) == [(1, [0, 1])] * 2 + [(5, [2, 3])] * 2


def test_new_subgroups_divides_a_group():
    def body(rank):
        odd = dist.new_group([1, 3, 5, 7])
        if rank % 2 == 0:
            return None
        mine, _ = dist.new_subgroups(2, group=odd)
        return total(mine)

    assert run_ranks(8, body) == [None, 4, None, 4, None, 12, None, 12]


def test_without_a_size_a_subgroup_is_a_host():
    def body(rank):
        mine, groups = dist.new_subgroups()
        assert groups == [mine]
        return dist.get_process_group_ranks(mine)

    assert run_ranks(3, body) == [[0, 1, 2]] * 3


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (3, r"The world size \(4\) must be divisible by 'group_size=3'"),
        (5, r"The arg 'group_size' \(5\) must not exceed the world size \(4\)"),
        (0, r"The arg 'group_size' \(0\) must be positive"),
    ],
)
def test_a_size_that_does_not_fit(size, text):
    def body(rank):
        with pytest.raises(ValueError, match=text):
            dist.new_subgroups(size)

    run_ranks(4, body)


def test_new_subgroups_by_enumeration():
    def body(rank):
        mine, groups = dist.new_subgroups_by_enumeration([[0, 3], [2]])
        assert len(groups) == 2
        return None if mine is None else total(mine)

    assert run_ranks(4, body) == [3, None, 2, 3]


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        ([], "'ranks_per_subgroup_list' cannot be empty"),
        (None, "'ranks_per_subgroup_list' cannot be empty"),
        (
            [[0, 1], [1]],
            r"Rank 1 has appeared in both subgroup \[0, 1\] and \[1\]",
        ),
        ([[0], [9]], r"Rank 9 is out of range. Valid ranks are 0 to 1"),
        ([[0], []], "must not be empty"),
    ],
)
def test_lists_that_make_no_subgroups(lists, text):
    def body(rank):
        with pytest.raises(ValueError, match=text):
            dist.new_subgroups_by_enumeration(lists)
        assert dist.get_pg_count() == 1  # none was made

    run_ranks(2, body)


def test_split_group_takes_ranks_of_the_parent():
    def body(rank):
        if rank < 2:
            return None
        high = dist.new_group(
            [2, 3, 4, 5],
            timeout=timedelta(seconds=7),
            use_local_synchronization=True,
        )
        part = dist.split_group(high, [[3, 0], [1]])
        assert total(high) == 14  # the parent stays
        if part is None:
            return None
        assert part.timeout == timedelta(seconds=7)
        assert dist.get_backend(part) == dist.get_backend()
        return dist.get_process_group_ranks(part), total(part)

    pair, single = ([2, 5], 7), ([3], 3)
    assert run_ranks(6, body) == [None, None, pair, single, None, pair]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (None, "split_ranks cannot be None or empty"),
        ([], "split_ranks cannot be None or empty"),
        ([[0], [0, 1]], r"Rank 0 has appeared in both subgroup \[0\] and \[0, 1\]"),
        ([[0, 2]], "Rank 2 is out of range"),
    ],
)
def test_lists_that_split_nothing(ranks, text):
    def body(rank):
        with pytest.raises(ValueError, match=text):
            dist.split_group(split_ranks=ranks)

    run_ranks(2, body)


def test_a_group_can_be_split_by_its_own_method():
    def body(rank):
        part = dist.group.WORLD.split_group(
            [0, 2], timedelta(seconds=3), group_name="mine", group_desc="ends"
        )
        if rank == 1:
            return part
        assert (part.group_name, part.group_desc) == ("mine", "ends")
        assert part.timeout == timedelta(seconds=3)
        with pytest.raises(ValueError, match="of the name 'mine' already"):
            dist.group.WORLD.split_group([0, 2], group_name="mine")
        return total(part)

    assert run_ranks(3, body) == [2, None, 2]


def test_a_split_may_serve_fewer_devices():
    def body(rank):
        whole = dist.group.WORLD
        only = whole.split_group([0, 1], device_types=["cpu"])
        assert dist.get_backend_config(only) == "cpu:fake"
        same = dist.split_group(split_ranks=[[0, 1]], backend="cuda:fake")
        assert dist.get_backend_config(same) == "cuda:fake"
        with pytest.raises(ValueError, match="serves cpu by native, but the parent"):
            dist.split_group(split_ranks=[[0, 1]], backend="cpu:native")
        with pytest.raises(ValueError, match="does not serve device type 'tpu'"):
            whole.split_group([0, 1], device_types=["tpu"])

    run_ranks(2, body, backend="fake")


def test_groups_of_the_same_members_stay_apart():
    def body(rank):
        parts = [dist.split_group(split_ranks=[[0, 1]]) for _ in range(3)]
        parts += [dist.new_group([0, 1])]
        works = [
            dist.all_reduce(np.ones(1) * index, group=part, async_op=True)
            for index, part in enumerate(parts)
        ]
        for work in works:
            work.wait()
        return [float(work.result()[0][0]) for work in works]

    assert run_ranks(2, body) == [[0, 2, 4, 6]] * 2


def test_groups_of_the_same_members_in_crossed_order_say_so():
    def body(rank):
        made = [dist.new_group([0, 1]), dist.new_group([0, 1])]
        first, second = made if rank else reversed(made)
        dist.all_reduce(np.ones(2), group=first, async_op=True)
        dist.barrier(group=second)

    for error in outcomes(2, body):
        assert isinstance(error, dist.CollectiveMismatchError)
        assert "all_reduce" in str(error)
        assert "barrier" in str(error)


def test_shrink_group_renumbers_the_world():
    def body(rank):
        sub = dist.new_group([1, 3])
        if rank == 1:
            return None
        new = dist.shrink_group([1])
        assert new is dist.group.WORLD
        assert dist.get_rank() == new.rank() == [0, None, 1, 2][rank]
        assert dist.get_pg_count() == 1
        if rank == 3:
            with pytest.raises(ValueError, match="is not registered"):
                dist.barrier(group=sub)
        return total(), total(dist.new_group([0, 2])) if dist.get_rank() != 1 else 0

    assert run_ranks(4, body) == [(3, 2), None, (3, 0), (3, 2)]


def test_a_world_can_shrink_again_and_again():
    def body(rank):
        for last in range(4, 0, -1):
            if rank == last:
                return None
            dist.shrink_group([last])
            assert total() == sum(range(last))
        return dist.get_world_size()

    assert run_ranks(5, body) == [1, None, None, None, None]


def test_shrink_group_of_a_subgroup_leaves_the_rest_alone():
    def body(rank):
        old = dist.new_group([3, 1, 0], sort_ranks=False)
        other = dist.new_group([0, 2])
        if rank in (0, 3):
            new = dist.shrink_group([1], old)  # group rank 1 is the world's rank 1
            assert dist.get_process_group_ranks(new) == [3, 0]
            assert new.group_desc == old.group_desc
            with pytest.raises(ValueError, match="is not registered"):
                dist.barrier(group=old)
            assert total(new) == 3
        if rank in (0, 2):
            assert total(other) == 2
        return total()

    assert run_ranks(4, body) == [6] * 4


def test_a_broken_group_shrinks():
    start, is_over = threading.Barrier(2), threading.Event()

    def body(rank):
        if rank == 2:
            is_over.wait(LIMIT)
            return None
        start.wait(LIMIT)
        with pytest.raises(dist.CollectiveTimeoutError) as caught:
            dist.barrier(timeout=timedelta(seconds=1))
        is_over.set()
        dist.shrink_group(caught.value.ranks)
        return total()

    assert run_ranks(3, body) == [1, 1, None]


def test_the_abort_flag_ends_what_still_runs():
    def body(rank):
        if rank == 2:
            return None
        work = dist.all_reduce(np.ones(1), async_op=True)
        dist.shrink_group([2], shrink_flags=1)
        with pytest.raises(dist.DistBackendError, match=r"shrink_group|gone|left"):
            work.wait()
        return total()

    assert run_ranks(3, body) == [1, 1, None]


@pytest.mark.parametrize(
    ("ranks", "kind", "text"),
    [
        ([], ValueError, "ranks_to_exclude cannot be empty"),
        ([0, 1], ValueError, r"\[0, 1\] are all 2 ranks of the group"),
        ([1, 1], ValueError, "duplicate entries"),
        ([2], ValueError, "Rank 2 is out of range"),
    ],
)
def test_ranks_that_cannot_be_excluded(ranks, kind, text):
    def body(rank):
        with pytest.raises(kind, match=text):
            dist.shrink_group(ranks)
        return total()

    assert run_ranks(2, body) == [1, 1]


def test_an_excluded_rank_may_not_shrink():
    def body(rank):
        if rank == 1:
            with pytest.raises(RuntimeError, match=r"rank 1 \(this process\) is among"):
                dist.shrink_group([1])

    run_ranks(2, body)


def test_two_groups_are_used_from_two_threads_at_once():
    def body(rank):
        groups = [dist.new_group() for _ in range(2)]

        def work(index):
            sums = []
            for step in range(200):
                array = np.full(1000, index * 1000 + step)
                dist.all_reduce(array, group=groups[index])
                sums.append(int(array[-1]))
            return sums

        with ThreadPoolExecutor() as threads:
            # A copy each: a context says whose rank a thread is.
            futures = [
                threads.submit(copy_context().run, work, index) for index in range(2)
            ]
            return [future.result() for future in futures]

    expected = [
        [3 * (index * 1000 + step) for step in range(200)] for index in range(2)
    ]
    assert run_ranks(3, body) == [expected] * 3


def test_shrink_group_takes_a_list():
    def body(rank):
        with pytest.raises(TypeError, match="ranks must be a list of ints, got 0"):
            dist.shrink_group(0)

    run_ranks(2, body)
