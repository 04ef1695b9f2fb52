"""Groups and worlds that end: what is queued, who waits, and for how long."""

import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.groups.world import current
from harness.pace import patient
from harness.ranks import LIMIT, run_ranks
from harness.worlds import init, total


def test_a_rank_destroys_a_group_that_it_never_used():
    is_open = threading.Event()

    def body(rank):
        group = dist.new_group()
        if rank == 0:
            dist.irecv(np.zeros(1), 1, group)  # so that it has used the group
            is_open.set()
            with pytest.raises(dist.RankFailedError, match=r"rank 1 .* left the group"):
                total(group)
        else:
            is_open.wait(LIMIT)
            start = time.monotonic()
            dist.destroy_process_group(group)
            assert time.monotonic() - start < patient(1, start)
        return total()

    assert run_ranks(2, body) == [1, 1]


def test_destroying_a_group_ends_it():
    def body(rank):
        group = dist.new_group()
        total(group)
        dist.barrier()
        dist.destroy_process_group(group)
        with pytest.raises(ValueError, match="Invalid process group specified"):
            dist.destroy_process_group(group)
        for call in (dist.get_rank, dist.get_process_group_ranks, total):
            with pytest.raises(ValueError, match="is not registered, please create"):
                call(group)
        with pytest.raises(ValueError, match="it was destroyed"):
            group.get_group_store()
        return total()

    assert run_ranks(2, body) == [1, 1]


def test_destroying_the_world_ends_all_groups():
    def body(rank):
        group = dist.new_group()
        dist.destroy_process_group()
        assert dist.group.WORLD is None
        with pytest.raises(ValueError, match="is not registered"):
            dist.get_rank(group)
        init()
        assert dist.new_group().group_name == "1"  # names start again

    run_ranks(1, body)


def test_destroy_finishes_what_is_queued():
    def body(rank):
        array = np.array([rank])
        work = dist.all_reduce(array, async_op=True)
        dist.destroy_process_group()
        assert work.is_success()
        return int(array[0])

    assert run_ranks(3, body) == [3, 3, 3]


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("aborter", [0, 1])
def test_abort_ends_those_who_wait(aborter, is_open):
    told = threading.Barrier(2)

    def body(rank):
        if is_open:
            dist.barrier()
        if rank == aborter:
            dist.group.WORLD.abort("enough")
        with pytest.raises(dist.DistBackendError, match="enough") as caught:
            dist.barrier()
        # Who leaves earlier is known to have left, not to have aborted.
        told.wait(LIMIT)
        assert caught.type is dist.DistBackendError

    run_ranks(2, body)


def test_destroying_waits_no_longer_than_the_groups_timeout():
    def body(rank):
        if rank == 0:
            group = dist.new_group(timeout=timedelta(seconds=0.2))
            long = timedelta(minutes=30)
            work = dist.barrier(group=group, async_op=True, timeout=long)
            start = time.monotonic()
            dist.destroy_process_group(group)
            assert time.monotonic() - start < patient(5, start)
            with pytest.raises(dist.DistBackendError):
                work.wait()
        dist.barrier()

    run_ranks(2, body)


def test_groups_share_the_time_to_leave():
    def body(rank):
        if rank == 0:
            groups = [dist.new_group() for _ in range(10)]
            works = [dist.barrier(group=group, async_op=True) for group in groups]
            start = time.monotonic()
            current().destroy(timedelta(seconds=0.5))
            assert 0.4 < time.monotonic() - start < patient(4, start)
            assert all(work.exception() for work in works)

    run_ranks(2, body)


def test_a_group_that_fails_to_leave_keeps_no_other_from_it():
    def body(rank):
        groups = [dist.new_group() for _ in range(3)]

        def fail(grace):
            raise dist.DistBackendError("lost")

        groups[1].shutdown = fail
        with pytest.raises(dist.DistBackendError, match="lost"):
            dist.destroy_process_group()
        for group in (groups[0], groups[2]):
            with pytest.raises(ValueError, match="destroyed"):
                group.get_group_store()

    run_ranks(1, body)


@pytest.mark.parametrize("is_world", [False, True])
def test_who_holds_a_group_is_called_before_its_end(is_world):
    def body(rank):
        world, seen = current(), []
        group = dist.group.WORLD if is_world else dist.new_group()

        def last_use():
            array = np.ones(1)
            group.allreduce(array).wait()
            seen.append(array[0])
            raise OSError("as what holds the group may")

        world.before_end_of(group, lambda: seen.append("of another"))
        world.before_end_of(group, last_use)
        with pytest.raises(OSError, match="as what holds"):
            dist.destroy_process_group(group)
        with pytest.raises(dist.DistBackendError):
            group.allreduce(np.ones(1))
        if not is_world:
            dist.destroy_process_group()
        return seen

    assert run_ranks(2, body) == [[2], [2]]
