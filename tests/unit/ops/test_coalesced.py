"""Several arrays in one call, and the futures these calls return."""

import threading

import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from allhands.arrays.future import Future
from allhands.groups.world import current, use
from harness.ranks import LIMIT, run_ranks

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

LARGE = 300_000  # elements: far more than a ring holds


@pytest.mark.parametrize("async_op", [False, True])
def test_all_reduce_coalesced_reduces_each(async_op):
    def body(rank):
        arrays = [np.full(2, rank + 1.0), np.full((2, 2), 10.0 * (rank + 1))]
        future = dist.all_reduce_coalesced(arrays, ReduceOp.MAX, async_op=async_op)
        if async_op:
            assert isinstance(future, Future)
            assert future.wait() == future.value()
            assert all(
                a is b for a, b in zip(future.result(LIMIT), arrays, strict=True)
            )
        else:
            assert future is None
        return [array.reshape(-1)[0] for array in arrays]

    assert run_ranks(3, body) == [[3, 30]] * 3


@pytest.mark.parametrize("async_op", [False, True])
def test_all_gather_coalesced_gathers_each(async_op):
    def body(rank):
        inputs = [np.full(2, float(rank)), np.full(3, 10.0 * rank)]
        outputs = [[np.zeros(2), np.zeros(3)] for _ in range(2)]
        future = dist.all_gather_coalesced(outputs, inputs, async_op=async_op)
        if async_op:
            assert future.result(LIMIT) is outputs
        return [[array[0] for array in arrays] for arrays in outputs]

    assert run_ranks(2, body) == [[[0, 0], [1, 10]]] * 2


def test_arrays_that_share_memory_are_reduced_as_they_were():
    def body(rank):
        once, shifted = np.ones(1), np.ones(4)
        dist.all_reduce_coalesced([once, once])
        dist.all_reduce_coalesced([shifted[:3], shifted[1:]])
        return once.tolist(), shifted.tolist()

    assert run_ranks(2, body) == [([2], [2, 2, 2, 2])] * 2


@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM(2)])
@pytest.mark.parametrize(("kind", "real"), [("c8", "f4"), ("c16", "f8")])
def test_complex_and_real_arrays_together(op, kind, real):
    def body(rank):
        strided = np.zeros((3, 4), kind)[:, ::2]
        strided[:] = np.arange(6).reshape(3, 2) * (1 - 2j)
        arrays = [np.full(2, 1 + rank * 1j, kind), np.ones(3, real), strided]
        alone = [array.copy() for array in arrays]
        dist.all_reduce_coalesced(arrays, op)
        for array in alone:
            dist.all_reduce(array, op)
        assert [a.tolist() for a in arrays] == [a.tolist() for a in alone]
        with pytest.raises(ValueError, match="PRODUCT of complex and real"):
            dist.all_reduce_coalesced(arrays, ReduceOp.PRODUCT)
        with pytest.raises(ValueError, match="different dtypes"):
            dist.all_reduce_coalesced([np.ones(1, kind), np.ones(1, "f2")])

    run_ranks(3, body)


@pytest.mark.parametrize("counts", [(2, 0, 3), (70_000, 1, 40_000), (0,)])
def test_lists_through_all_sizes(counts):
    """Of one line, of several chunks, and of nothing."""

    def values(rank, i):
        return np.arange(counts[i]) % 100 + rank + 10.0 * i

    def body(rank):
        everywhere = range(len(counts))
        inputs = [values(rank, i) for i in everywhere]
        wide = [np.empty((3, n)) for n in counts]
        world = dist.group.WORLD
        world.all_gather_single_coalesced(wide, inputs).wait()
        for i, whole in enumerate(wide):
            for source in range(3):
                np.testing.assert_array_equal(whole[source], values(source, i))
        mine = [np.empty(n)[::-1] for n in counts]
        world.reduce_scatter_single_coalesced(mine, wide).wait()
        for i, part in enumerate(mine):
            np.testing.assert_array_equal(part, 3 * values(rank, i))
        dist.all_reduce_coalesced(inputs)
        for i, total in enumerate(inputs):
            np.testing.assert_array_equal(total, 3 * values(1, i))

    run_ranks(3, body)


@pytest.mark.parametrize("name", ["all_gather_single", "reduce_scatter_single"])
def test_lists_of_unlike_length_are_refused(name):
    def body(rank):
        one, two = np.zeros(1), np.zeros(2)
        short, long = ([one], [two, two])
        if name == "reduce_scatter_single":
            short, long = long, short
        call = getattr(dist.group.WORLD, f"{name}_coalesced")
        with pytest.raises(RuntimeError, match=r"has [12] arrays, expected [12]"):
            call(long, short)
        dist.barrier()

    run_ranks(2, body)


def test_of_no_arrays():
    def body(rank):
        assert dist.all_reduce_coalesced([], async_op=True).result(LIMIT) == []
        dist.all_gather_coalesced([[], []], [])

    run_ranks(2, body)


def test_they_refuse():
    def body(rank):
        one = np.zeros(1)
        with pytest.raises(ValueError, match="found float64 and float32"):
            dist.all_reduce_coalesced([one, np.zeros(1, "f4")])
        with pytest.raises(TypeError, match="of an array type"):
            dist.all_reduce_coalesced([one, 5])
        with pytest.raises(TypeError, match="`input_tensor_list` of type list"):
            dist.all_gather_coalesced([[one], [one]], (one,))
        with pytest.raises(RuntimeError, match=r"expected length 2, got 1"):
            dist.all_gather_coalesced([[one]], [one])
        with pytest.raises(RuntimeError, match=r"expected length 1, got 0"):
            dist.all_gather_coalesced([[one], []], [one])
        dist.barrier()  # the group still works

    run_ranks(2, body)


def test_an_error_of_one_is_the_error_of_all():
    def body(rank):
        arrays = [np.zeros(1), np.zeros(2 + rank), np.zeros(1)]
        future = dist.all_reduce_coalesced(arrays, async_op=True)
        assert isinstance(future.exception(20), dist.CollectiveMismatchError)
        with pytest.raises(dist.CollectiveMismatchError):
            dist.all_reduce_coalesced(arrays)
        dist.barrier()  # the group still works

    run_ranks(2, body)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["all_reduce", "all_gather"])
def test_they_warn(name):
    def body(rank):
        one = [np.zeros(1)]
        lists = [one] if name == "all_reduce" else [[one], one]
        with pytest.warns(FutureWarning, match=f"_coalesced` .* use `allhands.{name}`"):
            getattr(dist, f"{name}_coalesced")(*lists)
        outside = dist.GroupMember.NON_GROUP_MEMBER
        with pytest.warns(UserWarning, match="does not belong to the given group"):
            assert getattr(dist, f"{name}_coalesced")(*lists, group=outside) is None

    run_ranks(1, body)


def test_a_coalescing_block_ends_when_all_its_calls_have():
    def body(rank):
        arrays = [np.full(n, rank + 1.0) for n in (1, 3, 100_000)]
        output, mine = np.zeros(2), np.zeros(1)
        with dist._coalescing_manager():
            for array in arrays:
                assert dist.all_reduce(array) is None
            dist.all_gather_single(output, np.ones(1))
            dist.reduce_scatter_single(mine, np.arange(2.0))
        assert [array[-1] for array in arrays] == [3, 3, 3]
        assert output.tolist() == [1, 1]
        dist.all_reduce(mine)  # as usual again
        return mine.tolist()

    assert run_ranks(2, body) == [[2]] * 2


def test_an_asynchronous_coalescing_block_is_waited_for():
    def body(rank):
        group = dist.new_group([0, 1])
        array = np.ones(1000)
        inner = []
        with dist._coalescing_manager(group=group, async_ops=True) as calls:
            inner.append(dist.all_reduce(array, group=group, async_op=True))
            dist.all_reduce(array, group=group)
            calls.append(dist.barrier(async_op=True))  # of another group
        calls.wait()
        assert len(calls.works) == 3
        assert inner[0].is_completed()
        return array[0]

    assert run_ranks(2, body) == [4, 4]


def test_a_coalescing_block_raises_at_its_end():
    def reduce_unlike(rank):
        with dist._coalescing_manager() as calls:
            dist.all_reduce(np.zeros(1 + rank))
            dist.all_reduce(np.zeros(1))
            assert len(calls.works) == 2  # nothing was raised so far

    def body(rank):
        with pytest.raises(dist.CollectiveMismatchError):
            reduce_unlike(rank)
        dist.barrier()

    run_ranks(2, body)


def test_a_coalescing_block_outside_the_group():
    def body(rank):
        outside = dist.GroupMember.NON_GROUP_MEMBER
        with dist._coalescing_manager(group=outside) as calls:
            calls.append(None)
        calls.wait()

    run_ranks(1, body)


def test_objects_within_a_coalescing_block_travel_as_outside():
    def body(rank):
        array, names = np.ones(3), [None] * 2
        with dist._coalescing_manager():
            dist.all_reduce(array)
            dist.all_gather_object(names, f"rank {rank}")
        assert names == ["rank 0", "rank 1"]
        return array.tolist()

    assert run_ranks(2, body) == [[2, 2, 2]] * 2


def test_a_monitored_barrier_within_a_coalescing_block_waits():
    arrived = []

    def body(rank):
        with dist._coalescing_manager():
            if rank == 1:
                arrived.append(rank)
            dist.monitored_barrier()
            assert arrived == [1]

    run_ranks(2, body)


def test_a_coalescing_block_is_its_threads_own():
    def body(rank):
        mine, other = np.ones(100_000), np.ones(100_000)
        world = current()
        results = []

        def reduce_elsewhere():
            with use(world):
                dist.all_reduce(other)
                results.append(other[-1])

        with dist._coalescing_manager():
            thread = threading.Thread(target=reduce_elsewhere)
            thread.start()
            thread.join()
            assert results == [2]  # done when it returned there
            dist.all_reduce(mine)
        return mine[-1]

    assert run_ranks(2, body) == [2, 2]


def test_messages_within_a_coalescing_block():
    def body(rank):
        here = np.zeros(2)
        with dist._coalescing_manager():
            dist.irecv(here, 1 - rank)
            dist.isend(np.full(2, rank + 1.0), 1 - rank)
        return here.tolist()

    assert run_ranks(2, body) == [[2, 2], [1, 1]]


def test_recv_and_sendrecv_within_a_coalescing_block_wait_as_outside():
    def body(rank):
        mine, (first, second) = np.full(LARGE, float(rank)), np.zeros((2, LARGE))
        with dist._coalescing_manager() as calls:
            dist.isend(mine, 1 - rank)
            assert dist.recv(first) == 1 - rank
            assert (first == 1 - rank).all()
            assert dist.sendrecv(mine, second, dst=1 - rank) == 1 - rank
            assert (second == 1 - rank).all()
        assert len(calls.works) == 1

    run_ranks(2, body)


def test_a_coalescing_block_outside_the_group_does_nothing_but_warn():
    def body(rank):
        outside = dist.GroupMember.NON_GROUP_MEMBER
        with (
            pytest.warns(UserWarning, match="Running all_reduce on global rank 0"),
            dist._coalescing_manager(outside) as calls,
        ):
            dist.all_reduce(np.ones(1), group=outside)
        assert calls.works == []

    run_ranks(1, body)
