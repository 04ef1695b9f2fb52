"""Work, as the native engine gives it."""

import asyncio
import gc
import signal
import sys
import threading
import weakref
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.work import CombinedWork, WorkResult
from allhands.groups.world import World, use
from allhands.store import HashStore
from harness.ranks import LIMIT, run_ranks


def late(rank, meet, call):
    """Start `call` on rank 0; the other rank joins once `meet` is passed."""
    if rank:
        meet.wait(LIMIT)
    return call()


def test_a_work_ends_well():
    def body(rank):
        array = np.array([rank])
        work = dist.all_reduce(array, async_op=True)
        assert work.wait() is True
        assert work.wait(timedelta(seconds=1)) is True
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        assert work.result() == [array]
        assert work.result()[0] is array
        work.synchronize()
        assert work.get_future() is work.get_future()
        assert work.get_future().result(1) == [array]
        assert work.get_future_result().result(1) is WorkResult.SUCCESS
        assert repr(work) == "<NativeWork: done>"
        return int(array[0])

    assert run_ranks(3, body) == [3, 3, 3]


def test_a_work_tells_the_operations_own_limit():
    def body(rank):
        array = np.ones(3)
        works = [
            dist.all_reduce(array, async_op=True),
            dist.isend(array, rank),
            dist.irecv(np.empty(3), rank),
        ]
        options = dist.BroadcastOptions()
        options.timeout = timedelta(seconds=1)
        short = dist.group.WORLD.broadcast([array], options)
        works += [short, CombinedWork([short, *works], [])]
        found = [work.timeout for work in works]
        works[-1].wait()
        return found

    own = timedelta(seconds=120)
    limits = [own, own, own, timedelta(seconds=1), own]
    assert run_ranks(2, body, timeout=120) == [limits] * 2


@pytest.mark.parametrize(
    ("call", "num_outputs"),
    [
        (lambda a: dist.broadcast(a, 0, async_op=True), 1),
        (lambda a: dist.all_gather([a, a.copy()], a.copy(), async_op=True), 2),
        (lambda a: dist.all_gather_single(np.zeros(4), a, async_op=True), 1),
        (lambda a: dist.barrier(async_op=True), 0),
    ],
)
def test_every_operation_gives_one(call, num_outputs):
    def body(rank):
        work = call(np.zeros(2))
        assert isinstance(work, dist.Work)
        assert len(work.get_future().result(LIMIT)) == num_outputs
        return work.wait()

    assert run_ranks(2, body) == [True, True]


def test_a_work_that_runs():
    meet = threading.Barrier(2)

    def body(rank):
        def call():
            array = np.array([rank])
            work = dist.all_reduce(array, async_op=True)
            if rank == 0:
                assert not work.is_completed()
                assert repr(work) == "<NativeWork: running>"
                assert not work.is_success()
                assert work.exception() is None
                with pytest.raises(RuntimeError, match="needs to be completed before"):
                    work.result()
                with pytest.raises(dist.CollectiveTimeoutError):
                    work.wait(timedelta(seconds=0.05))
                assert not work.get_future().cancel()
                meet.wait(LIMIT)
            work.wait()  # the operation went on
            dist.all_reduce(array)  # and so does the group
            return int(array[0])

        return late(rank, meet, call)

    assert run_ranks(2, body) == [2, 2]


def test_a_work_that_fails():
    meet = threading.Barrier(2)

    def body(rank):
        def call():
            work = dist.barrier(async_op=True, timeout=timedelta(seconds=0.1))
            for _ in range(2):
                with pytest.raises(dist.DistBackendError):
                    work.wait()
            assert work.is_completed()
            assert not work.is_success()
            assert isinstance(work.exception(), dist.DistBackendError)
            assert repr(work).startswith("<NativeWork: failed with Collective")
            with pytest.raises(dist.DistBackendError):
                work.result()
            with pytest.raises(dist.DistBackendError):
                work.get_future().result(1)
            meet.wait(LIMIT) if rank == 0 else None
            return work.get_future_result().result(1)

        return late(rank, meet, call)

    assert run_ranks(2, body)[0] is WorkResult.TIMEOUT


def test_mismatches_are_raised_by_wait():
    def body(rank):
        work = dist.all_reduce(np.zeros(2 + rank), async_op=True)
        with pytest.raises(dist.CollectiveMismatchError, match=r"count 2.*count 3"):
            work.wait()
        return work.get_future_result().result(1)

    assert run_ranks(2, body) == [WorkResult.COMM_ERROR] * 2


def test_ctrl_c_in_a_callback_is_for_the_program():
    def call(work):
        work.wait()
        work.add_done_callback(lambda: signal.raise_signal(signal.SIGINT))  # at once
        sum(range(1000))  # by here a signal is looked for

    with use(World()):
        dist.init_process_group(store=HashStore(), rank=0, world_size=1)
        hook, sys.unraisablehook = sys.unraisablehook, lambda args: None
        try:
            with pytest.raises(KeyboardInterrupt):
                call(dist.barrier(async_op=True))
        finally:
            sys.unraisablehook = hook
        dist.destroy_process_group()


def test_a_future_asked_for_in_a_callback_holds_up_no_other_python_thread():
    """It held Python's lock while it waited for the peers, here threads of Python."""

    def body(rank):
        group = dist.group.WORLD
        arrays = [np.array([rank]), np.array([10 * rank])]
        futures = []
        has_called = threading.Event()

        def go_on(_):
            futures.append(group.allreduce([arrays[1]]).get_future())
            has_called.set()

        group.allreduce([arrays[0]]).get_future().add_done_callback(go_on)
        assert has_called.wait(LIMIT)
        assert futures[0].result(LIMIT) == [arrays[1]]
        return [int(array[0]) for array in arrays]

    assert run_ranks(2, body, timeout=60) == [[1, 10]] * 2


def test_what_a_collective_has_not():
    def body(rank):
        work = dist.barrier(async_op=True)
        work.wait()
        with pytest.raises(RuntimeError, match="correspond to a recv"):
            work.source_rank()
        with pytest.raises(RuntimeError, match="no device stream"):
            work.block_current_stream()
        with pytest.raises(TypeError, match=r"of type datetime\.timedelta, got 5"):
            work.wait(5)

    run_ranks(1, body)


def test_operations_run_in_the_order_of_the_calls():
    def body(rank):
        array = np.ones(1000)
        works = [dist.all_reduce(array, async_op=True) for _ in range(8)]
        dist.all_reduce(array)
        assert all(work.is_completed() for work in works)  # without wait()
        return array[0]

    assert run_ranks(2, body) == [2**9, 2**9]


def test_a_work_can_be_awaited():
    def body(rank):
        async def main():
            arrays = [np.array([rank * n]) for n in range(1000)]
            works = [dist.all_reduce(array, async_op=True) for array in arrays]

            async def wait(work):
                return await work

            assert all(await asyncio.gather(*map(wait, works)))
            return [int(array[0]) for array in arrays]

        return asyncio.run(main())

    assert run_ranks(2, body) == [list(range(1000))] * 2


def test_awaiting_raises_the_error():
    def body(rank):
        async def main():
            await dist.all_reduce(np.zeros(1 + rank), async_op=True)

        with pytest.raises(dist.CollectiveMismatchError):
            asyncio.run(main())

    run_ranks(2, body)


def test_a_loop_that_closes_first_is_no_harm():
    meet = threading.Barrier(2)

    def body(rank):
        def call():
            work = dist.barrier(async_op=True)

            async def give_up():
                await asyncio.wait_for(_await(work), 0.05)

            if rank == 0:
                with pytest.raises(asyncio.TimeoutError):
                    asyncio.run(give_up())
                meet.wait(LIMIT)
            return work.wait()

        return late(rank, meet, call)

    assert run_ranks(2, body) == [True, True]


async def _await(work):
    return await work


def test_a_work_keeps_its_arrays():
    def body(rank):
        works = []
        for _ in range(20):
            works.append(dist.all_reduce(np.full(5000, rank), async_op=True))
        return {int(work.result()[0].sum()) for work in works if work.wait()}

    assert run_ranks(2, body) == [{5000}, {5000}]


def test_only_operations_make_a_native_work():
    def body(_rank):
        work = dist.barrier(async_op=True)
        with pytest.raises(TypeError, match="only the operations make one"):
            type(work)()
        with pytest.raises(TypeError, match="needs one of its objects"):
            type(work).is_completed(object())
        work.note = "as on any other object"
        return work.wait()

    assert run_ranks(1, body) == [True]


def test_a_work_that_its_own_result_holds_is_freed():
    def body(_rank):
        outputs = [np.zeros(2)]
        work = dist.all_gather(outputs, np.ones(2), async_op=True)
        work.wait()
        outputs.append(work)
        gone = weakref.ref(work)
        dist.barrier(async_op=True).wait()  # the group lets go of what has ended
        del work, outputs
        gc.collect()
        return gone()

    assert run_ranks(1, body) == [None]
