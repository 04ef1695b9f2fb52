"""Names with an underscore that programs take from torch.distributed all the same."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands import distributed_c10d as c10d
from harness.ranks import run_ranks

OUT = dist.GroupMember.NON_GROUP_MEMBER


@pytest.mark.filterwarnings("ignore:.*is a private function:FutureWarning")
@pytest.mark.parametrize("module", [dist, c10d], ids=["allhands", "distributed_c10d"])
def test_the_oldest_names_work(module):
    def body(rank):
        gathered, scattered, largest = np.zeros(4), np.zeros(2), np.zeros(2)
        world = dist.group.WORLD
        assert module._all_gather_base(gathered, np.full(2, rank + 1.0)) is None
        module._reduce_scatter_base(scattered, gathered + rank)
        work = module._reduce_scatter_base(
            largest, gathered * (rank + 1), dist.ReduceOp.MAX, world, True
        )
        work.wait()
        return gathered.tolist(), scattered.tolist(), largest.tolist()

    assert run_ranks(2, body) == [
        ([1, 1, 2, 2], [3, 3], [2, 2]),
        ([1, 1, 2, 2], [5, 5], [4, 4]),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("_all_gather_base", "all_gather_single"),
        ("_reduce_scatter_base", "reduce_scatter_single"),
    ],
)
def test_the_oldest_names_warn(old, new):
    def body(rank):
        with pytest.warns(FutureWarning, match=f"`allhands.{old}` .* `allhands.{new}`"):
            getattr(dist, old)(np.zeros(1), np.ones(1))

    run_ranks(1, body)  # one thread: pytest's catching is global


def test_the_ranks_share_the_default_store():
    def body(rank):
        store = c10d._get_default_store()
        store.set(f"by {rank}", "here")
        return store.get(f"by {1 - rank}")

    assert run_ranks(2, body) == [b"here"] * 2


def test_there_is_no_default_store_without_a_world():
    with pytest.raises(ValueError, match="has not been initialized"):
        c10d._get_default_store()


def test_a_rank_is_outside_only_of_what_it_is_not_in():
    def body(rank):
        first = dist.new_group([0])
        return [c10d._rank_not_in_group(group) for group in (first, OUT, None)]

    assert run_ranks(2, body) == [[False, True, False], [True, True, False]]


def test_the_time_limit_of_a_group_is_set():
    def body(rank):
        c10d._set_pg_timeout(timedelta(seconds=7), dist.group.WORLD)
        return dist.group.WORLD.timeout

    assert run_ranks(1, body) == [timedelta(seconds=7)]


def test_names_of_the_package_are_also_in_it():
    for name in ("_rank_not_in_group", "_get_process_group_name", "_CoalescingManager"):
        assert getattr(dist, name) is getattr(c10d, name)
    assert dist._make_nccl_premul_sum(2.0) == dist.ReduceOp.PREMUL_SUM(2.0)


def test_what_nobody_has_is_missing():
    with pytest.raises(AttributeError, match="no attribute '_get_everything'"):
        c10d._get_everything  # noqa: B018


def test_groups_are_found_by_name():
    def body(rank):
        world, part = dist.group.WORLD, dist.new_group([0])
        names = [c10d._get_process_group_name(each) for each in (world, OUT, None)]
        assert c10d._resolve_process_group(world.group_name) is world
        with pytest.raises(RuntimeError, match="under the name nobody"):
            c10d._resolve_process_group("nobody")
        assert c10d._get_process_group_store(world) is not None
        sizes = [c10d._get_group_size(each) for each in (None, part)]
        return names, sizes, c10d._get_group_size_by_name(world.group_name)

    names = ["0", "None", "None"]
    assert run_ranks(2, body) == [(names, [2, 1], 2), (names, [2, -1], 2)]


@pytest.mark.filterwarnings("ignore:.*_get_global_rank:FutureWarning")
def test_the_default_group_stands_for_none():
    def body(rank):
        world = dist.group.WORLD
        assert c10d._group_or_default_group(None) is world
        assert c10d._group_or_default_group(world) is world
        return c10d._get_global_rank(world, 1)

    assert run_ranks(2, body) == [1, 1]


def test_the_tables_show_the_groups_of_this_rank():
    def body(rank):
        tables, world, part = c10d._world, dist.group.WORLD, dist.new_group([1])
        assert tables.default_pg is world
        assert tables.pg_map[world][0] == dist.get_backend()
        assert tables.pg_names[world] == world.group_name
        assert tables.pg_backend_config[world] == dist.get_backend_config()
        ranks = tables.pg_group_ranks
        return ranks[world], ranks.get(part), tables.group_count

    whole = {0: 0, 1: 1}
    assert run_ranks(2, body) == [(whole, None, 2), (whole, {1: 0}, 2)]
    assert c10d._world.default_pg is None
    assert c10d._world.pg_map == {}


def test_objects_travel_by_the_cpu():
    def body(rank):
        return c10d._get_object_coll_device(), c10d._get_object_coll_device(OUT)

    assert run_ranks(1, body) == [("cpu", "cpu")]


def test_the_limits_of_groups():
    assert c10d._get_default_timeout("gloo") == dist.default_pg_timeout
    c10d._check_valid_timeout(timedelta(1))
    with pytest.raises(TypeError, match="Expected timeout argument"):
        c10d._check_valid_timeout(5)


def test_a_rank_outside_is_warned():
    def body(rank):
        with pytest.warns(UserWarning, match="Running foo on global rank 0"):
            c10d._warn_not_in_group("foo")

    run_ranks(1, body)  # one thread: pytest's catching is global


def test_a_barrier_in_a_store_waits_for_all_and_names_the_key():
    def body(rank):
        limit, store = timedelta(seconds=60), c10d._get_default_store()
        c10d._store_based_barrier(rank, store, "pair", 2, limit)
        told = "barrier on rank 0, for key: store_based_barrier_key:alone"
        with pytest.raises(dist.DistStoreError, match=told):
            c10d._store_based_barrier(0, dist.HashStore(), "alone", 2, timedelta(0))

    run_ranks(2, body)


def test_an_aborted_group_is_forgotten():
    def body(rank):
        part = dist.new_group([0, 1])
        c10d._abort_process_group(OUT)
        c10d._abort_process_group(part)
        with pytest.raises(ValueError, match="not registered"):
            dist.get_rank(part)
        assert dist.get_world_size() == 2
        dist.barrier()  # the world is not broken
        c10d._abort_process_group()
        return dist.is_initialized()

    assert run_ranks(2, body) == [False, False]
    with pytest.raises(AssertionError, match="Process group cannot be None"):
        c10d._abort_process_group()


def test_groups_have_tags():
    def body(rank):
        world, part = dist.group.WORLD, dist.new_group([1])
        tag = c10d._get_group_tag(world)
        assert c10d._world.pg_to_tag[world] == tag == f"ptd:{world.group_name}"
        assert c10d._tags_to_pg[tag] == [world]
        assert [info["pg_name"] for info in c10d._world.pg_config_info] == [
            *c10d._pg_names.values()
        ]
        assert c10d._resolve_group_name_by_ranks_and_tag([0, 1], "") == "0"
        with pytest.raises(ValueError, match="no group of the ranks"):
            c10d._resolve_group_name_by_ranks_and_tag([0, 1], "foo")
        return c10d._find_pg_by_ranks_and_tag("", [1]) is part

    assert run_ranks(2, body) == [False, True]


def test_groups_of_ranks_are_found_or_made():
    def body(rank):
        find = c10d._find_or_create_pg_by_ranks_and_tag
        assert find("", [3, 2, 1, 0], 4) is dist.group.WORLD
        with pytest.raises(ValueError, match="with empty tag"):
            find("", [0, 1, 2, 3], 2)
        pair = find("pairs", [0, 1, 2, 3], 2)
        assert find("pairs", [0, 1, 2, 3], 2) is pair
        assert c10d._find_pg_by_ranks_and_tag("", pair.global_ranks) is None
        assert c10d._get_group_tag(pair) == "pairs"
        assert c10d._world.tags_to_pg["user:pairs"][0] is pair
        with pytest.raises(ValueError, match=r"\(4\) must be divisible by stride \(3"):
            find("pairs", [0, 1, 2, 3], 3)
        with pytest.raises(AssertionError, match="doesn't include the current node"):
            find("pairs", [rank - 1, rank + 1], 2)
        return dist.get_process_group_ranks(pair)

    assert run_ranks(4, body) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_a_group_is_found_by_the_tag_that_it_was_given():
    def body(rank):
        tagged = c10d._new_group_with_tag([0, 1], pg_tag="mine")
        dist.new_group([0, 1])
        assert c10d._find_pg_by_ranks_and_tag("mine", [1, 0]) is tagged
        assert c10d._find_pg_by_ranks_and_tag("other", [0, 1]) is None
        assert c10d._find_or_create_pg_by_ranks_and_tag("mine", [0, 1], 2) is tagged
        outside = c10d._new_group_with_tag([0], pg_tag="mine")
        return outside == dist.GroupMember.NON_GROUP_MEMBER

    assert run_ranks(2, body) == [False, True]


def test_another_group_may_be_the_default():
    def body(rank):
        world = dist.group.WORLD
        alone = dist.new_group([rank], use_local_synchronization=True)
        dist.GroupMember.WORLD = alone
        assert c10d._backend == dist.get_backend(alone)
        sizes = [dist.get_world_size()]
        c10d._update_default_pg(None)
        assert not dist.is_initialized()
        c10d._world.default_pg = dist.group.WORLD = world
        with pytest.raises(ValueError, match="not registered"):
            dist.group.WORLD = 5
        return [*sizes, dist.get_world_size()]

    assert run_ranks(2, body) == [[1, 2], [1, 2]]


def test_groups_answer_to_the_private_names_of_torch():
    def body(rank):
        group = dist.group.WORLD
        assert group._get_backend_name() == dist.get_backend()
        assert not group._has_hooks()
        group.register_pre_hook(1, lambda args: None)
        assert group._has_hooks()
        before = group._get_sequence_number_for_group()
        dist.barrier()
        group._set_group_desc("mine")
        group._set_sequence_number_for_group()
        group._wait_for_pending_works()
        group._enable_collectives_timing()
        assert group.group_desc == "mine"
        return group._get_sequence_number_for_group() - before

    assert run_ranks(2, body) == [1, 1]


def test_the_devices_of_a_group_are_those_of_torch():
    torch = pytest.importorskip("torch")

    def body(rank):
        return dist.new_group(backend="cpu:native")._device_types

    assert run_ranks(1, body) == [[torch.device("cpu")]]


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (c10d._check_single_tensor, np.ones(1), [np.ones(1)]),
        (c10d._check_tensor_list, [np.ones(1)], np.ones(1)),
        (c10d._check_tensor_list, [], [1]),
    ],
)
def test_checks_of_arrays(check, right, wrong):
    check(right, "x")
    with pytest.raises(TypeError, match="Expected parameter `x`"):
        check(wrong, "x")


@pytest.mark.parametrize("op", [dist.send, None])
def test_the_check_of_an_op(op):
    c10d._check_op(dist.isend)
    c10d._check_op(dist.irecv)
    with pytest.raises(ValueError, match="Invalid ``op``"):
        c10d._check_op(op)


def test_the_check_of_a_list_of_messages():
    def body(rank):
        mine, other = dist.new_group([0, 1]), dist.group.WORLD
        ops = [dist.P2POp(dist.isend, np.ones(1), 0, g) for g in (mine, mine, other)]
        c10d._check_p2p_op_list(ops[:2])
        with pytest.raises(ValueError, match="same group"):
            c10d._check_p2p_op_list(ops)
        with pytest.raises(ValueError, match="Invalid ``p2p_op_list``"):
            c10d._check_p2p_op_list(ops[0])

    run_ranks(2, body)


def test_the_name_of_ranks_is_that_of_no_earlier_group():
    def body(rank):
        name = c10d._hash_ranks_to_str([0, 1])
        dist.new_group([0])
        return name, c10d._hash_ranks_to_str([0, 1])

    (first, second), others = run_ranks(2, body)
    assert (first, second) == others
    assert first != second


def test_the_logger():
    assert c10d.logger.name == "allhands.distributed_c10d"
