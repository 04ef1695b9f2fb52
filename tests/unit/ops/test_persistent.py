"""Persistent requests: what is theirs; ranks are threads.

That each gives what its plain call gives is held by the random cases of tests/property,
in which some ranks make the plain call.
"""

import gc
import re
import threading
import weakref
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from harness.ranks import LIMIT, Processes, run_ranks

# What prepares each, from two numbers `x` and four numbers `xx`; for 2 ranks.
PREPARE = {
    "all_reduce": lambda rank, x, xx, **o: dist.all_reduce_init(x, **o),
    "reduce": lambda rank, x, xx, **o: dist.reduce_init(x, 0, **o),
    "reduce_scatter_single": lambda rank, x, xx, **o: dist.reduce_scatter_single_init(
        x, xx, **o
    ),
    "broadcast": lambda rank, x, xx, **o: dist.broadcast_init(x, 0, **o),
    "all_gather_single": lambda rank, x, xx, **o: dist.all_gather_single_init(
        xx, x, **o
    ),
    "gather": lambda rank, x, xx, **o: dist.gather_init(
        x, None if rank else [xx[:2], xx[2:]], **o
    ),
    "scatter": lambda rank, x, xx, **o: dist.scatter_init(
        x, None if rank else [xx[:2], xx[2:]], **o
    ),
    "all_to_all_single": lambda rank, x, xx, **o: dist.all_to_all_single_init(
        xx, np.tile(x, 2), **o
    ),
    "barrier": lambda rank, x, xx, **o: dist.barrier_init(**o),
}


def world_of_requests(body, *, backend=None):
    """Run `body(request, name, rank)` for every operation on 2 ranks."""

    def each(rank):
        for name, prepare in PREPARE.items():
            x, xx = np.full(2, rank + 1.0), np.full(4, rank + 1.0)
            body(prepare(rank, x, xx), name, rank)

    run_ranks(2, each, backend=backend)


def test_an_array_that_was_resized_is_refused():
    """The memory that the request knew is no longer there."""

    def body(rank):
        whole, based = np.ones(100_000), np.ones(100_000)
        total, others = np.ones(3), np.zeros(6)
        requests = [
            dist.all_reduce_init(whole),
            dist.all_reduce_init(based[5:]),
            dist.all_reduce_init(based[::2]),
            dist.gather_init(total, None if rank else [others[:3], whole[:3]], dst=0),
        ]
        for request in requests:
            request()
        for array in (whole, based):
            array.resize(2, refcheck=False)
        for request in requests[: 4 - rank]:  # rank 1 passed no other array to gather
            for run in (request, request.start):
                with pytest.raises(ValueError, match=r"resized .* make a new request"):
                    run()
            assert not request.is_active()

    run_ranks(2, body)


def test_arrays_may_change_between_runs():
    def body(rank):
        tensor, results = np.zeros(3), []
        total = dist.all_reduce_init(tensor, ReduceOp.MAX)
        for i in range(4):
            tensor[:] = i + rank
            total()
            results.append(tensor.tolist())
            tensor[:] = -i - rank
            total.start()
            total.wait()
            results.append(tensor[0])
        return results

    expected = [[[1] * 3, 0], [[2] * 3, -1], [[3] * 3, -2], [[4] * 3, -3]]
    assert run_ranks(2, body) == [[x for pair in expected for x in pair]] * 2


def test_runs_count_as_calls_in_their_order():
    def body(rank):
        a, b = np.full(1, rank + 1.0), np.full(2, rank + 1.0)
        total, top = dist.all_reduce_init(a), dist.all_reduce_init(b, ReduceOp.MAX)
        if rank:  # plain calls meet requests
            dist.all_reduce(a)
            dist.all_reduce(b, ReduceOp.MAX)
            dist.barrier()
        else:
            total.start()
            top()  # waits for its turn
            dist.barrier_init()()
            assert total.wait()
        return a.tolist(), b.tolist()

    assert run_ranks(2, body) == [([3], [2, 2])] * 2


def test_preparing_sends_nothing():
    def body(rank):
        if rank == 0:
            x, xx = np.zeros(2), np.zeros(4)
            requests = [prepare(rank, x, xx) for prepare in PREPARE.values()]
            assert not any(request.is_active() for request in requests)
        dist.barrier()

    run_ranks(2, body)


@pytest.mark.parametrize("backend", ["native", "fake"])
def test_a_request_is_under_way_once(backend):
    def body(request, name, rank):
        assert isinstance(request, dist.PersistentRequest)
        with pytest.raises(RuntimeError, match=f"{name.split('_single')[0]}.*start()"):
            request.wait()
        request.start()
        for again in (request, request.start):
            with pytest.raises(RuntimeError, match=f"persistent {name[:6]}.*wait()"):
                again()
        assert request.is_active()
        assert re.fullmatch(r"<PersistentRequest: \w+.*, under way>", repr(request))
        assert request.wait(timedelta(seconds=LIMIT)) is True
        assert not request.is_active()
        assert re.fullmatch(r"<PersistentRequest: \w+.*, idle>", repr(request))
        request()

    world_of_requests(body, backend=backend)


@pytest.mark.parametrize("arguments", [(1,), ()])
def test_a_run_takes_no_arguments(arguments):
    def body(request, name, rank):
        with pytest.raises(TypeError):
            request(*arguments, **({} if arguments else {"async_op": True}))
        request()

    world_of_requests(body)


def test_arguments_are_checked_when_it_is_prepared():
    def body(rank):
        x, three, read_only = np.zeros(2), np.zeros(3), np.zeros(2)
        read_only.flags.writeable = False
        for call, error, message in [
            (lambda: dist.all_reduce_init(read_only), ValueError, "read-only"),
            (lambda: dist.all_reduce_init([1.0]), TypeError, "of an array type"),
            (lambda: dist.all_reduce_init(x, 0), TypeError, "got 0 of type"),
            (
                lambda: dist.all_reduce_init(x, ReduceOp.BAND),
                RuntimeError,
                "Cannot use ReduceOp.BAND with non-integral dtype: all_reduce got floa",
            ),
            (lambda: dist.all_reduce_init(x, timeout=3), TypeError, "timedelta, got 3"),
            (lambda: dist.reduce_init(x), ValueError, "Must specify global_rank"),
            (lambda: dist.reduce_init(x, 7), RuntimeError, "invalid root rank: 7"),
            (lambda: dist.broadcast_init(x, 7), RuntimeError, "invalid root rank: 7"),
            (
                lambda: dist.all_gather_single_init(three, x),
                ValueError,
                "has 3 elements, expected 4",
            ),
            (
                lambda: dist.reduce_scatter_single_init(x, three),
                ValueError,
                "has 3 elements, expected 4",
            ),
            (
                lambda: dist.all_to_all_single_init(x, three),
                RuntimeError,
                "dim 0 of size 3 does not divide equally",
            ),
        ]:
            with pytest.raises(error, match=message):
                call()
        dist.barrier()  # the group still works

    run_ranks(2, body)


def test_lists_are_checked_when_it_is_prepared():
    def body(rank):
        x = np.zeros(2)
        short, message = [x], r"expected length 2, got 1"
        if rank:
            short, message = [x, x], "must NOT be specified on non-"
        for prepare in (dist.gather_init, dist.scatter_init):
            with pytest.raises((RuntimeError, ValueError), match=message):
                prepare(x, short)
        dist.barrier()  # the group still works

    run_ranks(2, body)


def test_a_wait_that_expires_leaves_it_under_way():
    late = threading.Event()

    def body(rank):
        x = np.ones(2)
        total = dist.all_reduce_init(x)
        if rank:
            late.wait(LIMIT)
        total.start()
        if not rank:
            with pytest.raises(dist.CollectiveTimeoutError, match="did not finish in"):
                total.wait(timedelta(milliseconds=30))
            assert total.is_active()
            late.set()
        total.wait()
        return x.tolist()

    assert run_ranks(2, body) == [[2, 2]] * 2


def test_a_mismatch_ends_the_run_and_not_the_request():
    def body(rank):
        x = np.ones(2)
        total = dist.all_reduce_init(x)
        for run in (total, lambda: (total.start(), total.wait())):
            with pytest.raises(dist.CollectiveMismatchError, match="barrier"):
                dist.barrier() if rank else run()
            assert not total.is_active()
        total()
        return x.tolist()

    assert run_ranks(2, body) == [[2, 2]] * 2


def test_the_limit_is_that_of_each_run():
    limit = timedelta(seconds=1)  # enough for the run where all come
    over = threading.Event()

    def body(rank):
        total = dist.all_reduce_init(np.ones(2), timeout=limit)
        dist.barrier()
        total()
        if rank == 0:
            with pytest.raises(dist.CollectiveTimeoutError, match=r"\(limit 1.00 s\)"):
                total()
            assert not total.is_active()
            over.set()
        over.wait(LIMIT)

    run_ranks(2, body)


def test_after_the_group_is_destroyed():
    def body(rank):
        group = dist.new_group()
        x = np.ones(2)
        total = dist.all_reduce_init(x, group=group)
        total()
        dist.destroy_process_group(group)
        for run in (total, total.start):
            with pytest.raises(dist.DistBackendError, match="was destroyed"):
                run()
            assert not total.is_active()
        return x.tolist()

    assert run_ranks(2, body) == [[2, 2]] * 2


def test_a_forked_child_is_no_rank():
    """It has the request's memory, and would speak for its parent."""
    source = """
        total = dist.all_reduce_init(np.ones(2))
        total()
        meet = dist.barrier_init()
        meet.start()
        child = os.fork()
        if not child:
            for run in (total, total.start, meet.wait):
                try:
                    run()
                except dist.DistBackendError as error:
                    assert "a forked child is no rank" in str(error)
                else:
                    os._exit(1)
            os._exit(7)
        give(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        meet.wait()
        total()
    """
    with Processes(2, source) as processes:
        assert processes.join() == [7, 7]


def test_it_keeps_its_arrays_alive():
    class Watched(np.ndarray):
        pass

    def body(rank):
        def prepare(kind):
            x = np.full(2, 1.0).view(kind)
            return dist.all_reduce_init(x), weakref.ref(x)

        for kind in (np.ndarray, Watched):
            total, watch = prepare(kind)
            total()
            total.start()
            total.wait()
            assert watch().tolist() == [4, 4]
            del total
            dist.barrier(async_op=True).wait()  # lets go of what was queued
            gc.collect()
            assert watch() is None

    run_ranks(2, body)


def test_two_threads_cannot_run_one_request_at_once():
    inside = threading.Event()

    def body(rank):
        meet = dist.barrier_init()
        if rank == 0:
            thread = threading.Thread(target=meet)
            thread.start()
            while not meet.is_active():
                assert thread.is_alive()
            with pytest.raises(RuntimeError, match="under way"):
                meet()
            inside.set()
            thread.join()
        else:
            inside.wait(LIMIT)
            meet()

    run_ranks(2, body)


def test_a_request_of_strided_arrays():
    def body(rank):
        base = np.arange(6.0)
        total = dist.all_reduce_init(base[::2])
        total()
        total()
        return base.tolist()

    assert run_ranks(2, body) == [[0, 1, 8, 3, 16, 5]] * 2


def test_within_a_coalescing_block_a_run_waits_for_what_was_posted():
    def body(rank):
        x, y = np.ones(2), np.ones(1)
        total = dist.all_reduce_init(x)
        with dist._coalescing_manager():
            dist.all_reduce(y)
            total()
            assert x.tolist() == [2, 2]
        return y.tolist()

    assert run_ranks(2, body) == [[2]] * 2


def test_outside_the_group_nothing_happens_but_a_warning():
    def body(rank):
        x, xx = np.zeros(2), np.zeros(4)
        outside = dist.GroupMember.NON_GROUP_MEMBER
        for name, prepare in PREPARE.items():
            with pytest.warns(UserWarning, match=f"Running {name}_init on global"):
                assert prepare(rank, x, xx, group=outside) is None

    run_ranks(1, body)  # one thread: pytest's catching is global
