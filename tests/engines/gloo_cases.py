"""What is Gloo's own about backend gloo, on ranks that are threads."""

from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.remote_exception import told
from harness.ranks import run_ranks

SECOND = timedelta(seconds=1)


def test_the_inputs_of_a_reduce_stay():
    def body(rank):
        mine = np.full(3, rank + 1.0)
        dist.reduce(mine, 1)
        return mine.tolist()

    assert run_ranks(3, body) == [[1] * 3, [6] * 3, [3] * 3]


def test_every_dtype_is_moved_and_reduced():
    def body(rank):
        for name in ("i2", "u2", "u4", "u8", "c8", "c16", "f2"):
            x = np.full(2, rank + 1, name)
            dist.all_reduce(x, dist.ReduceOp.PRODUCT)
            assert x.tolist() == [6, 6]
            dist.broadcast(x[::-1], 2)

    run_ranks(3, body)


def test_splits_that_do_not_fit_are_refused_and_the_group_works_on():
    def body(rank):
        with pytest.raises((ValueError, RuntimeError), match="3"):
            dist.all_to_all_single(np.empty(4), np.ones(4))
        with pytest.raises(ValueError, match="to itself"):
            dist.isend(np.ones(1), rank)
        with pytest.raises(ValueError, match="tags from 0 to 1073741823"):
            dist.isend(np.ones(1), (rank + 1) % 3, tag=1 << 30)
        x = np.ones(1)
        dist.all_reduce(x)
        return x[0]

    assert run_ranks(3, body) == [3, 3, 3]


def test_a_message_that_does_not_come_times_out_and_the_group_works_on():
    def body(rank):
        group = dist.new_group()
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match="recv from rank 1"):
                dist.recv(np.empty(1), 1, group=group, timeout=SECOND / 2)
        x = np.ones(1)
        dist.all_reduce(x, group=group)
        if rank == 1:
            dist.send(np.full(1, 9.0), 0, tag=3, group=group)
        if rank == 0:
            dist.recv(x, 1, tag=3, group=group)
        return x[0]

    assert run_ranks(3, body) == [9, 3, 3]


def test_a_group_of_members_that_do_not_come_names_them():
    def body(rank):
        if rank < 2:
            with pytest.raises(dist.DistStoreError, match=r"\[2\].* group .*gloo"):
                dist.new_group(timeout=SECOND / 2, use_local_synchronization=True)

    run_ranks(3, body)


def test_options_are_refused():
    def body(rank):
        with pytest.raises(TypeError, match="takes no pg_options"):
            dist.new_group(pg_options=dist.NativeOptions())

    run_ranks(1, body)


def test_worlds_merge():
    between = dist.HashStore()

    def body(rank):
        limit = 20 * SECOND
        dist.init_process_group(
            "gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=limit
        )
        merged = dist.group.WORLD.merge_remote_group(between, 2, limit)
        x = np.ones(1)
        dist.all_reduce(x, group=merged)
        return merged.size(), x[0]

    assert run_ranks(2, body, init=False) == [(2, 2)] * 2


def test_the_exception_that_ended_a_rank_is_the_cause_of_what_others_raise():
    def body(rank):
        dist.barrier()
        if rank == 1:
            error = ValueError("bad")
            dist.group.WORLD.communicator.note_failure("ValueError: bad", told(error))
            dist.destroy_process_group()
            return
        for _ in range(2):
            with pytest.raises(dist.RankFailedError, match="ValueError: bad") as info:
                dist.all_reduce(np.ones(1))
            assert info.value.__cause__.rank == 1
            assert info.value.__cause__.traceback == "ValueError: bad"

    run_ranks(3, body)
