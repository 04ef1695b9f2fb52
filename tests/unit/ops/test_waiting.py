"""Who carries out an operation that was issued with async_op=True."""

import contextvars
import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.groups.world import current
from harness.pace import patient
from harness.ranks import LIMIT, run_ranks


def _warm():
    dist.barrier()  # the segment is there


def test_the_thread_that_waits_carries_it_out():
    def body(rank):
        _warm()
        threads = set()
        for turn in range(200):
            array = np.full(3, rank + turn)
            work = dist.all_reduce(array, async_op=True)
            work.add_done_callback(lambda: threads.add(threading.get_ident()))
            work.wait()
            assert array.tolist() == [2 * turn + 1] * 3
        return threading.get_ident() in threads

    assert run_ranks(2, body) == [True, True]


def test_it_ends_without_anybody_waiting():
    def body(rank):
        _warm()
        ended = threading.Event()
        work = dist.all_reduce(np.ones(3), async_op=True)
        work.add_done_callback(ended.set)
        return ended.wait(LIMIT)

    assert run_ranks(2, body) == [True, True]


def test_who_waits_for_the_last_carries_out_those_before_it():
    def body(rank):
        _warm()
        arrays = [np.full(2, rank + i) for i in range(20)]
        works = [dist.all_reduce(array, async_op=True) for array in arrays]
        works[-1].wait()
        assert all(work.is_completed() for work in works)
        dist.barrier()
        return [array[0] for array in arrays]

    assert run_ranks(2, body) == [[2 * i + 1 for i in range(20)]] * 2


def test_a_limit_of_the_wait_leaves_the_operation_under_way():
    ready = threading.Event()

    def body(rank):
        _warm()
        array = np.full(3, float(rank))
        if rank == 1:
            ready.wait(LIMIT)
            dist.all_reduce(array)
            return array.tolist()
        work = dist.all_reduce(array, async_op=True)
        for _ in range(3):
            start = time.monotonic()
            with pytest.raises(dist.CollectiveTimeoutError, match="it goes on"):
                work.wait(timedelta(milliseconds=20))
            assert time.monotonic() - start < patient(10, start)
        ready.set()
        work.wait()
        return array.tolist()

    assert run_ranks(2, body) == [[1, 1, 1]] * 2


def test_the_limit_may_be_a_float_of_seconds():
    came = threading.Event()

    def body(rank):
        if rank == 1:
            assert came.wait(LIMIT)
        array = np.ones(1)
        work = dist.all_reduce(array, async_op=True)
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError):
                work.wait(0.02)
            came.set()
        work.wait(float(LIMIT))
        return array.tolist()

    assert run_ranks(2, body) == [[2.0], [2.0]]


def test_a_limit_ends_a_wait_for_large_arrays_that_are_read_in_place():
    ready = threading.Event()

    def body(rank):
        _warm()
        array = np.full(1 << 20, float(rank))
        if rank == 0:
            ready.wait(LIMIT)
            dist.broadcast(array, 0)
        else:
            work = dist.broadcast(array, 0, async_op=True)
            with pytest.raises(dist.CollectiveTimeoutError):
                work.wait(timedelta(milliseconds=5))
            ready.set()
            work.wait()
        return np.unique(array).tolist()

    assert run_ranks(2, body) == [[0], [0]]


def test_several_threads_wait():
    def body(rank):
        _warm()
        arrays = [np.full(2, rank + i) for i in range(30)]
        works = [dist.all_reduce(array, async_op=True) for array in arrays]
        threads = [
            threading.Thread(target=work.wait, daemon=True) for work in works[::-1]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        return [array[0] for array in arrays]

    assert run_ranks(2, body) == [[2 * i + 1 for i in range(30)]] * 2


class Starts:
    """An observer that tells when the first operation begins."""

    def __init__(self):
        self.is_begun = threading.Event()

    def before(self, _operation):
        self.is_begun.set()
        return 0

    def after(self, _token, _error):
        pass


def test_destroying_the_group_ends_a_call_of_another_thread():
    is_over = threading.Event()

    def body(rank):
        _warm()
        if rank == 1:
            is_over.wait(LIMIT)
            with pytest.raises(dist.DistBackendError, match="rank 0 closed the group"):
                dist.barrier()
            return None
        errors = []

        def call():
            try:
                dist.barrier()
            except dist.DistBackendError as error:
                errors.append(str(error))

        seen = Starts()
        current().observe(seen)
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(call,), daemon=True)
        thread.start()
        assert seen.is_begun.wait(LIMIT)
        dist.destroy_process_group()
        thread.join(LIMIT)
        is_over.set()
        assert not thread.is_alive()
        return errors

    ended, _ = run_ranks(2, body)
    assert len(ended) == 1


# A callback that comes late runs at once, in the thread that gives it.
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("end_it", ["shutdown", "destroy", "destroy the world"])
def test_a_callback_cannot_destroy_its_own_group(end_it, is_late):
    def body(rank):
        _warm()
        raised = []
        ended = threading.Event()
        world = current()
        group = dist.new_group() if end_it == "destroy" else dist.group.WORLD
        ends = {
            "shutdown": group.shutdown,
            "destroy": lambda: world.remove(group),
            "destroy the world": world.destroy,
        }

        def end():
            try:
                ends[end_it]()
            except RuntimeError as error:
                raised.append(str(error))
            ended.set()

        work = dist.barrier(group=group, async_op=True)
        if is_late:
            work.wait()
        work.add_done_callback(end)
        assert ended.wait(LIMIT)
        dist.barrier(group=group)
        return raised

    for raised in run_ranks(2, body):
        assert "cannot be destroyed by a callback" in raised[0]
