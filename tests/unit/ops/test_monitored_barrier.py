"""monitored_barrier names the ranks that did not come, on every rank."""

import threading
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.ranks import LIMIT, outcomes, run_ranks

SHORT = timedelta(seconds=1)  # enough for those who come


def test_ranks_that_come_pass():
    def body(rank):
        for wait in (False, True):
            dist.monitored_barrier(wait_all_ranks=wait)
            dist.monitored_barrier(dist.group.WORLD, timedelta(seconds=5), wait)

    run_ranks(3, body)


@pytest.mark.parametrize("had_calls", [False, True])
@pytest.mark.parametrize(
    ("wait_all_ranks", "names"), [(True, "Ranks 1, 3"), (False, "Rank 1")]
)
def test_every_rank_names_who_is_missing(had_calls, wait_all_ranks, names):
    start, over = threading.Barrier(2), threading.Barrier(4)

    def body(rank):
        if had_calls:
            dist.barrier()
        try:
            if rank not in (1, 3):
                start.wait(LIMIT)
                dist.monitored_barrier(None, SHORT, wait_all_ranks)
        finally:
            over.wait(LIMIT)
        dist.monitored_barrier(None, SHORT, wait_all_ranks)  # late

    for rank, error in enumerate(outcomes(4, body)):
        assert isinstance(error, dist.CollectiveTimeoutError)
        first = f"[Rank {rank}]: {names} failed to pass monitoredBarrier in 1000 ms"
        assert str(error).splitlines()[0] == first
        assert error.ranks == [1, 3]


def test_a_groups_ranks_are_named_by_their_global_ranks():
    def body(rank):
        high = dist.new_group([2, 3])
        if rank == 2:
            dist.monitored_barrier(high, SHORT)
        elif rank < 2:
            with pytest.warns(UserWarning, match="monitored_barrier on global rank"):
                dist.monitored_barrier(high)

    error = outcomes(4, body)[2]
    assert str(error).startswith("[Rank 2]: Rank 3 failed to pass monitoredBarrier")
    assert error.ranks == [1]  # of the group, as in every error


def test_a_rank_that_left_is_named():
    def body(rank):
        dist.barrier()
        if rank == 1:
            dist.destroy_process_group()
        else:
            dist.monitored_barrier()

    error = outcomes(2, body)[0]
    assert isinstance(error, dist.RankFailedError)
    assert "Rank 1 failed to pass monitoredBarrier" in str(error)
    assert error.ranks == [1]


def test_another_call_is_a_mismatch():
    def body(rank):
        if rank == 0:
            dist.monitored_barrier()
        else:
            dist.all_reduce(np.ones(1))

    assert {type(e) for e in outcomes(2, body)} == {dist.CollectiveMismatchError}


def test_a_float_is_taken_as_seconds():
    def body(rank):
        with pytest.warns(UserWarning, match=r"timedelta. Converting .* of 2.5 assum"):
            dist.monitored_barrier(timeout=2.5)

    run_ranks(1, body)


def test_a_negative_limit_is_its_own_argument():
    def body(rank):
        with pytest.raises(ValueError, match=r"^monitored_barrier: timeout must"):
            dist.monitored_barrier(timeout=timedelta(seconds=-1))

    run_ranks(1, body)


def test_on_a_broken_group_it_says_when_that_broke():
    def body(rank):
        group = dist.new_group()
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError):
                dist.barrier(group, timeout=SHORT)
            with pytest.raises(dist.DistBackendError, match="is broken since") as e:
                dist.monitored_barrier(group, timedelta(seconds=77))
            assert "77" not in str(e.value)
        dist.barrier()

    run_ranks(2, body)
