"""wait_any and wait_some; ranks are threads."""

import threading
import weakref
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.work import Work
from harness.launcher import wait_until
from harness.ranks import run_ranks

SOON = timedelta(milliseconds=50)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_each_operation_is_found_once_as_it_ends(size):
    def body(rank):
        if rank:
            token = np.empty(1)
            dist.recv(token, 0, tag=1)
            dist.send(np.full(3, float(rank)), 0)
            return None
        arrays = [np.empty(3) for _ in range(1, size)]
        works = [dist.irecv(array, src) for src, array in enumerate(arrays, 1)]
        found = []
        for source in reversed(range(1, size)):
            dist.send(np.ones(1), source, tag=1)
            found.append(dist.wait_any(works))
            works[found[-1]] = None
        assert dist.wait_any(works) is None
        return found, [array.tolist() for array in arrays]

    found, arrays = run_ranks(size, body)[0]
    assert found == [*reversed(range(size - 1))]
    assert arrays == [[float(rank)] * 3 for rank in range(1, size)]


def test_wait_some_finds_all_that_have_ended():
    def body(rank):
        if rank:
            for tag in (0, 2):
                dist.send(np.ones(1), 0, tag=tag)
            dist.barrier()
            dist.send(np.ones(1), 0, tag=1)
            return None
        works = [dist.irecv(np.empty(1), 1, tag=tag) for tag in range(3)]
        for index in (0, 2):
            works[index].wait()
        found = [dist.wait_some(works), dist.wait_some(works), dist.wait_any(works)]
        works[0] = works[2] = None
        dist.barrier()
        return *found, dist.wait_some(works), dist.wait_some([None]), dist.wait_some([])

    assert run_ranks(2, body)[0] == ([0, 2], [0, 2], 0, [1], [], [])


def test_collectives_among_them_are_carried_out():
    def body(rank):
        arrays = [np.full(2, float(rank)) for _ in range(3)]
        works = [dist.all_reduce(array, async_op=True) for array in arrays]
        while (index := dist.wait_any(works)) is not None:
            assert arrays[index].tolist() == [3, 3]
            works[index] = None

    run_ranks(3, body)


def test_a_limit_leaves_the_operations_under_way():
    def body(rank):
        here = np.zeros(1)
        works = [None, dist.irecv(here, 1 - rank)]
        text = (
            r"wait_any timed out: waited 0\.05 s for one of 1 operations, which go on"
        )
        with pytest.raises(dist.CollectiveTimeoutError, match=text):
            dist.wait_any(works, timeout=SOON)
        dist.barrier()
        dist.send(np.ones(1), 1 - rank)
        return dist.wait_any(works), here.tolist()

    assert run_ranks(2, body) == [(1, [1])] * 2


def test_the_error_of_an_operation_is_raised():
    def body(rank):
        works = [
            dist.irecv(np.empty(1), 1 - rank, tag=1),
            dist.irecv(np.empty(1), 1 - rank, tag=2, timeout=SOON),
        ]
        with pytest.raises(dist.CollectiveTimeoutError, match="tag 2"):
            dist.wait_any(works)
        assert works[1].is_completed()
        dist.barrier()
        dist.send(np.ones(1), 1 - rank, tag=1)
        works[0].wait()
        with pytest.raises(dist.CollectiveTimeoutError, match="tag 2"):
            dist.wait_some(works)
        return dist.wait_any(works)

    assert run_ranks(2, body) == [0, 0]


def test_several_threads_wait_for_the_same():
    def body(rank):
        works = [dist.irecv(np.empty(1), 1 - rank)]
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(dist.wait_any(works)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        dist.send(np.ones(1), 1 - rank)
        for thread in threads:
            thread.join()
        return found

    assert run_ranks(2, body) == [[0, 0, 0]] * 2


class Counting(Work):
    """Ends when it is told to, and counts who asks to be told."""

    def __init__(self):
        super().__init__()
        self.callbacks = []
        self.is_over = False

    def is_completed(self):
        return self.is_over

    def wait_for(self, timeout):
        assert self.is_over

    def add_done_callback(self, callback):
        self.callbacks.append(callback)

    def end(self):
        self.is_over = True
        for callback in self.callbacks:
            callback()


def test_waiting_again_and_again_leaves_nothing_behind():
    works = [Counting(), Counting()]
    for _ in range(100):
        with pytest.raises(dist.CollectiveTimeoutError):
            dist.wait_any(works, timeout=timedelta(microseconds=1))
    assert [len(work.callbacks) for work in works] == [1, 1]
    assert [work._listeners for work in works] == [set(), set()]
    threading.Timer(0.01, works[1].end).start()
    assert dist.wait_any(works) == 1


def test_what_is_no_work_is_refused():
    with pytest.raises(
        TypeError, match=r"wait_some: the list has Works or None, got 3"
    ):
        dist.wait_some([None, 3])


@pytest.mark.parametrize("call", [dist.wait_any, dist.wait_some])
def test_any_iterable_will_do_and_nothing_else(call):
    def body(rank):
        sent = dist.isend(np.ones(1), 1 - rank)
        works = [None, dist.irecv(np.empty(1), 1 - rank)]
        found = call((work for work in works), timeout=timedelta(seconds=30))
        assert found in (1, [1])
        sent.wait()
        for wrong in (sent, None, 3):
            with pytest.raises(TypeError, match=f"{call.__name__} wants a list of W"):
                call(wrong)

    run_ranks(2, body)


def test_the_longest_limit_can_be_given():
    def body(rank):
        if rank == 0:
            dist.barrier()
            dist.send(np.ones(1), 1)
            return None
        work = dist.irecv(np.empty(1), 0)
        barrier = dist.barrier(async_op=True)
        found = dist.wait_any([work], timeout=timedelta.max)
        barrier.wait()
        return found

    assert run_ranks(2, body)[1] == 0


WAITS = {
    "each": lambda works: [work.wait() for work in works],
    "wait_some": lambda works: [dist.wait_some(works[:1]), dist.wait_some(works[1:])],
    "wait_any": lambda works: [dist.wait_any(works[:1]), dist.wait_any(works[1:])],
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_messages_that_were_waited_for_keep_no_arrays(wait):
    def body(rank):
        arrays = [np.ones(3), np.empty(3)]
        seen = [weakref.ref(array) for array in arrays]

        def kept():
            return [each for each in seen if each() is not None]

        peer = 1 - rank
        works = [dist.isend(arrays[0], peer), dist.irecv(arrays[1], peer)]
        del arrays
        assert len(kept()) == 2
        wait(works)
        works.clear()
        if dist.get_backend() == "mpi":
            # The thread that tests for ends may have the handle for a moment longer.
            wait_until(lambda: not kept(), 5, "nothing keeps the arrays")
        assert not kept()

    run_ranks(2, body)
