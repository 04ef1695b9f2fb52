"""Arrays on devices, which the native engine gets by way of CPU memory."""

import threading
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.call import Call
from harness import device_arrays
from harness.device_arrays import Hidden
from harness.device_calls import SIZE, calls, numbers, on_device, values
from harness.ranks import run_ranks


@pytest.fixture(autouse=True)
def hidden(monkeypatch):
    device_arrays.use(monkeypatch)


def scans(rank):
    yield Call("scan", np.full(5, -1.0), numbers(rank))
    yield Call("exscan", np.full(5, -1.0), numbers(rank))  # leaves rank 0's as it is


@pytest.mark.parametrize("is_async", [False, True])
def test_every_operation_does_what_it_does_with_arrays_in_cpu_memory(is_async):
    def body(rank):
        communicator = dist.group.WORLD.communicator
        both = [[*calls(rank), *scans(rank)] for _ in range(2)]
        for expected, given in zip(*both, strict=True):
            communicator.submit(expected)
            call = replace(on_device(given), async_op=is_async)
            work = communicator.submit(call)
            assert (work is not None) == is_async
            if work is not None:
                assert work.wait()
                assert work.is_success()
            assert (call.op, values(call.output)) == (call.op, values(expected.output))

    run_ranks(SIZE, body)


def test_the_functions_of_the_package_take_them():
    def body(rank):
        array = Hidden(numbers(rank))
        dist.all_reduce(array)
        assert array.tolist() == sum(map(numbers, range(SIZE))).tolist()
        column = Hidden(np.zeros((4, 3))[:, 1])
        column.values[...] = rank
        dist.broadcast(column, 2)
        assert column.tolist() == [2.0] * 4
        mixed = np.zeros(5)
        dist.all_gather([Hidden(np.zeros(5)), mixed, Hidden(np.zeros(5))], array)
        assert mixed.tolist() == array.tolist()
        request = dist.all_reduce_init(array)
        for _ in range(2):
            array.values[...] = rank
            request()
            assert array.tolist() == [3.0] * 5

    run_ranks(SIZE, body)


def test_what_is_built_of_operations_takes_them():
    def body(rank):
        mine = [Hidden(np.full(n, float(rank))) for n in (3, 2)]
        dist.average_gradients(mine)
        assert values(mine) == [[1.0] * 3, [1.0] * 2]
        dist.debug.check_equal({"weights": mine[0]})
        with pytest.raises(dist.ContentMismatchError):
            dist.debug.check_equal({"weights": Hidden(np.full(3, float(rank)))})

    run_ranks(SIZE, body)


def test_messages():
    def body(rank):
        here, there = Hidden(np.zeros(5)), 1 - rank
        assert dist.sendrecv(Hidden(numbers(rank)), here, there, there) == there
        assert here.tolist() == numbers(there).tolist()
        if rank == 0:
            dist.send(here, 1, tag=7)
            dist.isend(numbers(0), 1).wait()
            dist.isend(here, 1).wait()
            return
        assert dist.recv(here, tag=7) == 0
        assert here.tolist() == numbers(1).tolist()
        work = dist.irecv(here)
        work.wait()
        assert (work.source_rank(), here.tolist()) == (0, numbers(0).tolist())
        wide, status = Hidden(np.full(8, -1.0)), dist.Status()
        dist.recv(wide, 0, status=status)
        assert (status.count(float), status.source) == (5, 0)
        assert wide.tolist() == [*numbers(1), -1, -1, -1]

    run_ranks(2, body)


def test_nothing_is_copied_back_after_an_error():
    def body(rank):
        array = Hidden(numbers(rank))
        if rank == 0:
            with pytest.raises(dist.DistBackendError):  # rank 1 may have left
                dist.all_reduce(array, timeout=timedelta(seconds=0.1))
            assert array.tolist() == numbers(0).tolist()
            assert "to device" not in device_arrays.log

    run_ranks(2, body)


def test_only_what_is_needed_is_copied():
    def body(rank):
        array = Hidden(numbers(rank))
        dist.broadcast(array, 0)
        assert device_arrays.log == ["to host", "wait 0", "wait 0"]  # the root's
        device_arrays.log.clear()
        dist.all_gather_single(Hidden(np.zeros(5)), array)
        assert device_arrays.log == ["to host", "wait 0", "to device", "wait 0"]

    run_ranks(1, body)


def test_refused_arrays_are_refused_before_anything_is_copied():
    def body(rank):
        overlapping = Hidden(np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,)))
        with pytest.raises(ValueError, match="overlap"):
            dist.all_reduce(overlapping)
        with pytest.raises(RuntimeError, match="tensor list"):
            dist.all_gather([], Hidden(np.zeros(2)))
        assert "to device" not in device_arrays.log

    run_ranks(1, body)


def test_a_callback_finds_the_result_on_the_device():
    def body(rank):
        array, seen = Hidden(numbers(rank)), threading.Event()
        found = []

        def look(future):
            found.append(array.tolist())
            seen.set()

        dist.all_reduce(array, async_op=True).get_future().add_done_callback(look)
        assert seen.wait(100)
        assert found == [sum(map(numbers, range(2))).tolist()]

    run_ranks(2, body)
