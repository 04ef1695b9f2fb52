"""What is Gloo's own about backend gloo, on ranks that are threads."""

from datetime import timedelta

import numpy as np
import pytest
import torch

import allhands as dist
from allhands.backends.remote_exception import told
from harness.plain_calls import fail_plain, note_plain
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


OPS = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}


@pytest.mark.parametrize("count", [1, 1000, 300_000])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_plain_tensors_are_reduced_with_those_that_are_not(size, count):
    def body(rank):
        taken = note_plain(dist.group.WORLD.communicator)
        for number, dtype in enumerate(("i4", "i8", "f4", "f8")):
            for name, function in OPS.items():
                op = getattr(dist.ReduceOp, name)
                inputs = [
                    ((np.arange(count) + r) % 5).astype(dtype) for r in range(size)
                ]
                plain = torch.tensor(inputs[rank])
                strided = plain.repeat_interleave(2)[::2]
                here = strided if rank == number % size else plain
                dist.all_reduce(here.numpy() if number % 2 else here, op)
                assert taken.pop() == here.is_contiguous()
                assert np.array_equal(here, function.reduce(inputs)), (dtype, name)

    run_ranks(size, body)


def shortened():
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(8)
    return tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(4)[::2],
        lambda: torch.ones(4, requires_grad=True),
        lambda: torch.nn.Parameter(torch.ones(4)),
        lambda: torch.ones(4, dtype=torch.bfloat16),
        lambda: torch.ones(4, dtype=torch.int8),
        lambda: torch.ones(4, dtype=torch.complex64),
        lambda: torch.ones(4).to_sparse(),
        lambda: torch.ones(4, device="meta"),
        lambda: torch._neg_view(torch.ones(4)),
        lambda: torch.ones(0),
        lambda: np.ones(4)[::2],
        shortened,
    ],
)
def test_tensors_that_are_not_plain(make):
    def body(rank):
        plain_all_reduce = dist.group.WORLD.communicator._plain_all_reduce
        assert plain_all_reduce(make(), dist.ReduceOp.SUM) is NotImplemented
        for op in (dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM(2.0), "SUM", []):
            assert plain_all_reduce(torch.ones(4), op) is NotImplemented

    run_ranks(1, body)


@pytest.mark.parametrize("make", [torch.ones, np.ones], ids=["plain", "other"])
def test_a_time_limit_may_be_as_long_as_there_is(make):
    def body(rank):
        x = make(3)
        dist.all_reduce(x, timeout=timedelta.max)
        assert x.tolist() == [2, 2, 2]

    run_ranks(2, body)


def test_a_plain_reduction_that_some_do_not_call_names_them_and_breaks_the_group():
    def body(rank):
        group = dist.new_group()
        dist.barrier(group)
        group.set_timeout(SECOND)
        if rank < 2:
            with pytest.raises(dist.CollectiveTimeoutError) as info:
                dist.all_reduce(torch.ones(1), group=group)
            assert "all_reduce #2 timed out" in str(info.value)
            assert 2 in info.value.ranks
            with pytest.raises(dist.DistBackendError, match="broken since: all_reduce"):
                dist.all_reduce(torch.ones(1), group=group)
        dist.barrier()

    run_ranks(3, body)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_plain_reduction_that_ends_by_an_error_breaks_the_group(error):
    def body(rank):
        group = dist.new_group()
        if rank == 0:
            fail_plain(group.communicator, error("at once"))
            kind = dist.DistBackendError if error is RuntimeError else error
            with pytest.raises(kind, match="at once"):
                dist.all_reduce(torch.ones(1), group=group)
            with pytest.raises(dist.DistBackendError, match=r"all_reduce #1"):
                dist.all_reduce(torch.ones(1), group=group)
        dist.barrier()

    run_ranks(2, body)
