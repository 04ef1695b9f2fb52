"""Messages that do not fit, that expire, and of ranks that left."""

import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from harness.pace import patient
from harness.ranks import LIMIT, outcomes, run_ranks

SHORT = timedelta(seconds=0.2)
LARGE = 300_000  # elements: far more than a ring holds


@pytest.mark.parametrize("sent", [np.zeros(2), np.zeros(LARGE), np.zeros(4, "f4")])
def test_a_mismatch_raises_on_both_sides(sent):
    def body(rank):
        if rank == 0:
            dist.send(sent, 1)
            dist.recv(np.zeros(1), 1)  # nothing ever comes
            return
        output = np.full(4, 7.0)
        try:
            dist.recv(output, 0)
        finally:
            assert output.tolist() == [7.0] * 4
            error.wait(LIMIT)

    error = threading.Event()

    def watch(rank):
        try:
            body(rank)
        finally:
            if rank == 0:
                error.set()

    sender, receiver = outcomes(2, watch)
    kind = "float32" if sent.dtype == "f4" else "float64"
    assert isinstance(sender, dist.CollectiveMismatchError)
    assert isinstance(receiver, dist.CollectiveMismatchError)
    assert sender.ranks == [1]
    assert receiver.ranks == [0]
    assert "float64, count 4" in str(sender)
    assert f"rank 0 sent {kind}, count {sent.size}" in str(receiver)


def test_a_refused_message_is_told_at_the_end_if_not_before():
    met = threading.Barrier(2)

    def body(rank):
        if rank == 0:
            dist.send(np.zeros(2), 1)
            met.wait(LIMIT)
            with pytest.raises(dist.CollectiveMismatchError, match="count 4"):
                dist.destroy_process_group()
        else:
            with pytest.raises(dist.CollectiveMismatchError, match="count 2"):
                dist.recv(np.zeros(4), 0)
            met.wait(LIMIT)

    run_ranks(2, body)


def test_a_mismatch_leaves_the_group_usable():
    def body(rank):
        call = dist.recv if rank else dist.send
        with pytest.raises(dist.CollectiveMismatchError):
            call(np.zeros(5 if rank else LARGE), 1 - rank)
        dist.sendrecv(np.full(5, rank), output := np.empty(5, int), 1 - rank, 1 - rank)
        dist.all_reduce(output)
        return output.tolist()

    assert run_ranks(2, body) == [[1] * 5] * 2


def test_a_wait_that_expires_changes_nothing():
    met = threading.Barrier(2)

    def body(rank):
        array = np.zeros(3)
        if rank == 1:
            met.wait(LIMIT)
            dist.send(array + 5, 0)
            return None
        work = dist.irecv(array, 1)
        with pytest.raises(
            dist.CollectiveTimeoutError, match=r"did not finish in 0\.2"
        ):
            work.wait(SHORT)
        assert not work.is_completed()
        assert work.exception() is None
        with pytest.raises(RuntimeError, match="nothing has come yet"):
            work.source_rank()
        met.wait(LIMIT)
        work.wait()
        return array.tolist()

    assert run_ranks(2, body)[0] == [5.0] * 3


def test_calls_that_expire_leave_the_group_usable():
    met = threading.Barrier(2)

    def body(rank):
        peer, array = 1 - rank, np.full(LARGE, rank)
        calls = [
            lambda: dist.recv(array, peer, tag=1, timeout=SHORT),
            lambda: dist.recv(array, tag=2, timeout=SHORT),
            lambda: dist.send(array, peer, tag=3, timeout=SHORT),
            lambda: dist.irecv(array, peer, tag=4, timeout=SHORT).wait(),
            lambda: dist.isend(array, peer, tag=5, timeout=SHORT).wait(),
            lambda: dist.sendrecv(
                array, array, peer, peer, tag=6 + rank, timeout=SHORT
            ),
        ]
        for call in calls:
            start = time.monotonic()
            with pytest.raises(dist.CollectiveTimeoutError, match=r"waited 0\.2"):
                call()
            assert time.monotonic() - start >= 0.19
        met.wait(LIMIT)
        dist.sendrecv(array, output := np.empty(LARGE, int), peer, peer)
        return set(output.tolist())

    assert run_ranks(2, body) == [{1}, {0}]


def test_a_busy_rank_still_obeys_its_limit():
    """Messages from elsewhere must not keep a wait from looking at the time."""
    stop = threading.Event()

    def body(rank):
        count = np.zeros(1)
        if rank == 1:
            while not stop.is_set():
                dist.send(np.zeros(1), 0)
                count += 1
                time.sleep(0.001)
            return dist.send(count, 0, tag=2)
        start = time.monotonic()
        try:
            with pytest.raises(dist.CollectiveTimeoutError):
                dist.recv(np.zeros(1), 1, tag=1, timeout=timedelta(seconds=0.5))
        finally:
            stop.set()
        assert time.monotonic() - start < patient(5, start)
        dist.recv(count, 1, tag=2)
        for _ in range(int(count[0])):
            dist.recv(np.zeros(1), 1)


def test_a_small_message_that_its_receiver_left_without_is_told_at_close():
    left = threading.Event()

    def body(rank):
        if rank == 1:
            dist.send(np.ones(3), 0)
        dist.barrier()
        if rank == 0:
            dist.destroy_process_group()
            left.set()
            return
        left.wait(LIMIT)
        with pytest.raises(
            dist.RankFailedError, match=r"small messages .* rank 0 .* left"
        ) as info:
            dist.destroy_process_group()
        assert info.value.ranks == [0]

    run_ranks(2, body)


def test_a_rank_that_left_is_named_and_its_messages_are_not_lost():
    left = threading.Event()

    def body(rank):
        dist.barrier()
        if rank == 1:
            dist.send(np.ones(3), 0)
            dist.destroy_process_group()
            left.set()
            return
        array = np.zeros(3)
        left.wait(LIMIT)
        if rank == 0:
            dist.recv(array, 1)
            assert array.tolist() == [1] * 3
            for call in (dist.recv, dist.send):
                with pytest.raises(
                    dist.RankFailedError, match=r"rank 1 .*left"
                ) as info:
                    call(array, 1)
                assert info.value.ranks == [1]

    run_ranks(3, body)


def test_abort_ends_what_waits_on_other_ranks():
    posted = threading.Barrier(3)

    def body(rank):
        array = np.zeros(1)
        peer = {0: 1, 1: 0, 2: 0}[rank]
        work = dist.irecv(array, peer)
        posted.wait(LIMIT)
        if rank == 2:
            dist.group.WORLD.abort("enough")
        with pytest.raises(dist.DistBackendError, match="aborted"):
            work.wait()
        with pytest.raises(dist.DistBackendError, match="aborted"):
            dist.recv(array, peer)
        posted.wait(LIMIT)

    run_ranks(3, body)


@pytest.mark.parametrize("count", [1, 900])
def test_unmatched_messages_hold_up_no_other(count):
    """Also far more of them than a rank keeps for its peers."""
    num_messages = 5000

    def body(rank):
        if rank == 0:
            works = [
                dist.isend(np.full(count, n), 1, tag=0) for n in range(num_messages)
            ]
            dist.send(np.full(count, -1), 1, tag=1)
            assert all(work.wait() for work in works)
            return
        array = np.empty(count, int)
        dist.recv(array, 0, tag=1)
        assert array[0] == -1
        for n in range(num_messages):
            dist.recv(array, 0)
            assert array[-1] == n

    run_ranks(2, body)
