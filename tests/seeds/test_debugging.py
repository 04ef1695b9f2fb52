"""What the reference shows of programs that go wrong, and of a look at running ones."""

import threading
from datetime import timedelta

import pytest

import allhands as dist
from harness.ranks import LIMIT, outcomes, run_ranks


def test_monitored_barrier_names_the_rank_that_did_not_come():
    over = threading.Barrier(2)

    def body(rank):
        group = dist.new_group(backend="gloo")
        try:
            if rank not in [1]:
                dist.monitored_barrier(group=group, timeout=timedelta(seconds=0.5))
        finally:
            over.wait(LIMIT)

    error, none = outcomes(2, body)
    assert isinstance(error, RuntimeError)
    assert "Rank 1 failed to pass monitoredBarrier in 500 ms" in str(error)
    assert none is None


def test_monitored_barrier_names_all_ranks_that_did_not_come():
    over = threading.Barrier(4)

    def body(rank):
        try:
            if dist.get_rank() == 0:
                dist.monitored_barrier(
                    timeout=timedelta(seconds=0.5), wait_all_ranks=True
                )
        finally:
            over.wait(LIMIT)

    error, *others = outcomes(4, body)
    assert "Ranks 1, 2, 3 failed to pass monitoredBarrier in 500 ms" in str(error)
    assert others == [None] * 3


def test_all_reduce_of_different_shapes(xp):
    """10 elements on rank 0, 20 on rank 1: an error on both, at any debug level."""

    def body(rank):
        tensor = xp.ones(10 if rank == 0 else 20)
        with pytest.raises(dist.CollectiveMismatchError, match=r"count 10.*count 20"):
            dist.all_reduce(tensor)
        assert tensor.tolist() == xp.ones(len(tensor)).tolist()
        again = xp.ones(1)
        dist.all_reduce(again)
        return again.item()

    assert run_ranks(2, body) == [2.0, 2.0]


def test_debug_levels(monkeypatch):
    before = dist.get_debug_level()
    try:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        assert dist.get_debug_level() == dist.DebugLevel.DETAIL
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "INFO")
        dist.set_debug_level_from_env()
        assert dist.get_debug_level() == dist.DebugLevel.INFO
    finally:
        dist.set_debug_level(before)


def test_exceptions_derive_as_listed():
    assert issubclass(dist.DistError, RuntimeError)
    for error in (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError):
        assert issubclass(error, dist.DistError)


def test_record_comm_around_a_collective(xp):
    def body(rank):
        output = xp.zeros(4)
        with dist.record_comm("FSDP::all_gather (layer1)"):
            dist.all_gather_single(output, xp.ones(2) * rank)
        return output.tolist()

    assert run_ranks(2, body) == [[0.0, 0.0, 1.0, 1.0]] * 2
