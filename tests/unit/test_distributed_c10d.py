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
