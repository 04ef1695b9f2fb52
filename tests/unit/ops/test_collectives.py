"""What the collectives do, refuse and say; ranks are threads."""

import threading
import time
from datetime import timedelta

import ml_dtypes
import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from harness.pace import patient
from harness.ranks import LIMIT, run_ranks

OUTSIDE = dist.GroupMember.NON_GROUP_MEMBER


def test_all_reduce_reduces_in_place():
    def body(rank):
        array = np.arange(3.0) * (rank + 1)
        assert dist.all_reduce(array) is None
        return array.tolist()

    assert run_ranks(3, body) == [[0, 6, 12]] * 3


@pytest.mark.parametrize(
    ("dtype", "op", "values", "expected"),
    [
        (ml_dtypes.bfloat16, ReduceOp.SUM, [256, 1, 1], 258),
        ("float16", ReduceOp.AVG, [40000, 40000, 0], 26672),
        ("float32", ReduceOp.MAX, [1, np.nan, 2], np.nan),
        ("float32", ReduceOp.MIN, [np.nan, 1, 2], np.nan),
        ("int64", ReduceOp.AVG, [-4, -3, 0], -2),
        ("uint8", ReduceOp.SUM, [200, 200, 0], 144),
        ("bool", ReduceOp.SUM, [True, True, False], True),
        ("bool", ReduceOp.BXOR, [True, True, True], True),
        ("complex64", ReduceOp.PRODUCT, [1j, 1j, 2], -2),
    ],
)
def test_numerics(dtype, op, values, expected):
    def body(rank):
        array = np.full(4099, values[rank], dtype)
        dist.all_reduce(array, op)
        return array

    for result in run_ranks(3, body):
        np.testing.assert_array_equal(result, np.full(4099, expected, dtype))


def test_premul_sum_has_a_factor_per_rank():
    def body(rank):
        array = np.ones(2)
        dist.all_reduce(array, ReduceOp.PREMUL_SUM(rank + 0.5))
        return array.tolist()

    assert run_ranks(2, body) == [[2, 2]] * 2


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [
        ("i8", 2**53 + 1),
        ("i8", -(2**63)),
        ("u8", 2**64 - 1),
        ("u8", np.uint64(2**63 + 1)),
        ("i4", np.int16(-7)),
        ("u2", 3.0),
    ],
)
def test_an_integer_factor_is_exact(dtype, factor):
    def body(rank):
        array = np.arange(1, 6).astype(dtype)
        dist.all_reduce(array, ReduceOp.PREMUL_SUM(factor if rank else 1))
        parts = np.repeat(np.arange(1, 3).astype(dtype), 5)
        part = parts[:5].copy()
        dist.reduce_scatter_single(part, parts, ReduceOp.PREMUL_SUM(factor))
        return array, part

    dtype = np.dtype(dtype)
    wrapped = np.array(int(factor) % 2**64, np.uint64).astype(dtype)
    for rank, (array, part) in enumerate(run_ranks(2, body)):
        expected = np.arange(1, 6).astype(dtype)
        np.testing.assert_array_equal(array, expected + expected * wrapped)
        np.testing.assert_array_equal(part, np.full(5, 2 * (rank + 1), dtype) * wrapped)


@pytest.mark.parametrize("factor", [2**64, -(2**63) - 1, 0.5, float("nan"), 1e300])
def test_a_factor_that_is_no_64_bit_integer_is_refused_for_integers(factor):
    def body(rank):
        with pytest.raises(
            ValueError, match=r"integer in \[-2\*\*63, 2\*\*64\).*int64"
        ):
            dist.all_reduce(np.ones(2, "i8"), ReduceOp.PREMUL_SUM(factor))
        floats = np.ones(2)
        dist.all_reduce(floats, ReduceOp.PREMUL_SUM(factor))
        np.testing.assert_array_equal(floats, np.full(2, 2 * float(factor)))

    run_ranks(2, body)


@pytest.mark.parametrize(
    ("dtype", "op", "error", "message"),
    [
        ("f4", ReduceOp.BAND, RuntimeError, "Cannot use ReduceOp.BAND with non-integr"),
        ("c8", ReduceOp.BXOR, RuntimeError, "Cannot use ReduceOp.BXOR with non-integr"),
        (
            "c8",
            ReduceOp.MAX,
            ValueError,
            r"all_reduce does not support RedOpType\.MAX on",
        ),
        ("f4", ReduceOp.PREMUL_SUM, TypeError, "PREMUL_SUM needs a factor"),
        ("f4", 0, TypeError, "op must be an allhands.ReduceOp, got 0"),
        ("?", ReduceOp.AVG, TypeError, r"ReduceOp\.AVG with dtype bool"),
    ],
)
def test_reductions_that_mean_nothing_are_refused(dtype, op, error, message):
    def body(rank):
        array = np.ones(2, dtype)
        with pytest.raises(error, match=message):
            dist.all_reduce(array, op)
        dist.all_reduce(array, ReduceOp.SUM)  # the group still works

    run_ranks(2, body)


def test_broadcast_copies_one_ranks_array():
    def body(rank):
        results = []
        for options in ({"src": 2}, {"group_src": 2}):
            array = np.full((2, 2), rank)
            dist.broadcast(array, **options)
            results.append(array.tolist())
        return results

    assert run_ranks(3, body) == [[[[2, 2], [2, 2]]] * 2] * 3


def test_the_root_is_a_global_rank_or_a_group_rank():
    def body(rank):
        group = dist.new_group([2, 1], sort_ranks=False)
        results = []
        for options in ({"src": 1}, {"group_src": 1}):
            array = np.array([rank])
            if rank:
                dist.broadcast(array, group=group, **options)
            results.append(int(array[0]))
        return results

    assert run_ranks(3, body) == [[0, 0], [1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "Must specify global_rank or group_rank: pass src or dst"),
        (
            {"src": 0, "group_src": 0},
            ValueError,
            "Can't specify both group_rank and gl",
        ),
        ({"src": 5}, RuntimeError, r"invalid root rank: 5; it must be in \[0, 2\)"),
        ({"group_src": -1}, RuntimeError, "invalid root rank: -1"),
        ({"src": "1"}, TypeError, "a rank must be an int, got '1'"),
        ({"group_src": 1.0}, TypeError, r"a rank must be an int, got 1\.0"),
    ],
)
def test_roots_that_are_none_are_refused(options, error, message):
    def body(rank):
        with pytest.raises(error, match=message):
            dist.broadcast(np.zeros(1), **options)
        group = dist.new_group([0])
        if rank == 0:
            with pytest.raises(ValueError, match="Global rank 1 is not part of group"):
                dist.broadcast(np.zeros(1), src=1, group=group)

    run_ranks(2, body)


def test_all_gather_collects_by_rank():
    def body(rank):
        parts = [np.zeros(2) for _ in range(3)]
        dist.all_gather(parts, np.full(2, float(rank)))
        return np.array(parts).tolist()

    assert run_ranks(3, body) == [[[0, 0], [1, 1], [2, 2]]] * 3


@pytest.mark.parametrize("shape", [(6,), (3, 2), (2, 3)])
def test_all_gather_single_concatenates_or_stacks(shape):
    def body(rank):
        output = np.zeros(shape)
        dist.all_gather_single(output, np.full(2, float(rank)))
        return output.reshape(-1).tolist()

    assert run_ranks(3, body) == [[0, 0, 1, 1, 2, 2]] * 3


def test_the_older_name_warns():
    def body(rank):
        output = np.zeros(1)
        with pytest.warns(
            FutureWarning, match="Please use `allhands.all_gather_single`"
        ):
            dist.all_gather_into_tensor(output, np.ones(1))
        return output.tolist()

    assert run_ranks(1, body) == [[1]]  # one thread: pytest's catching is global


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        (lambda x: [x[:2], x[:2], x[4:6]], "0 and 1"),
        (lambda x: [x[4:6], x[:2], x[3:5]], "0 and 2"),
        (lambda x: [x[:8:4], x[4:6], x[:8:4]], "0 and 2"),
    ],
    ids=["same", "overlapping", "strided"],
)
def test_outputs_must_not_share_memory(outputs, named):
    def body(rank):
        lists = outputs(np.zeros(10))
        part = np.ones(2)
        message = f"outputs {named} share memory; each needs its own"
        with pytest.raises(ValueError, match=f"all_gather: {message}"):
            dist.all_gather(lists, part)
        with pytest.raises(ValueError, match=f"all_to_all: {message}"):
            dist.all_to_all(lists, [part] * 3)
        if rank == 0:
            with pytest.raises(ValueError, match=f"gather: {message}"):
                dist.gather(part, lists)
        matrix = np.zeros((2, 3))
        dist.all_gather(list(matrix.T)[::-1], part * rank)  # columns: interleaved
        output = np.zeros((6, 2))
        dist.all_gather_single(output[:, 0], part * rank)
        return matrix[0].tolist(), output[:, 0].tolist()

    assert run_ranks(3, body) == [([2, 1, 0], [0, 0, 1, 1, 2, 2])] * 3


def test_the_input_may_lie_in_the_output():
    def body(rank):
        output = np.zeros(6)
        output[2 * rank : 2 * rank + 2] = rank
        dist.all_gather_single(output, output[2 * rank : 2 * rank + 2])
        return output.tolist()

    assert run_ranks(3, body) == [[0, 0, 1, 1, 2, 2]] * 3


def test_all_gather_refuses():
    def body(rank):
        one, two = np.zeros(1), np.zeros(2)
        for outputs, error, message in [
            ((one, one), TypeError, r"`tensor_list` of type list.*<class 'tuple'>"),
            ([one], RuntimeError, r"expected length 2, got 1"),
            (
                [one, np.zeros(1, "f4")],
                ValueError,
                "different dtypes: found float64 and",
            ),
            ([one, 5], TypeError, "parameter `tensor_list` of an array type"),
        ]:
            with pytest.raises(error, match=message):
                dist.all_gather(outputs, one)
        with pytest.raises(
            ValueError, match="different dtypes: found float64 and float"
        ):
            dist.all_gather_single(two.astype("f4"), one)
        with pytest.raises(ValueError, match="3 elements"):
            dist.all_gather_single(np.zeros(3), one)
        dist.barrier()  # the group still works

    run_ranks(2, body)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_world_of_one(count):
    def body(rank):
        array = np.arange(float(count))
        dist.all_reduce(array, ReduceOp.AVG)
        dist.broadcast(array, 0)
        output = [np.zeros(count)]
        dist.all_gather(output, array)
        dist.barrier()
        return output[0].tolist()

    assert run_ranks(1, body) == [list(range(count))]


def test_nothing_but_the_result_is_written():
    def body(rank):
        array = np.zeros((4, 4))
        dist.all_reduce(array[1:3, ::2], ReduceOp.SUM)
        array[1:3, ::2] = 1
        dist.all_reduce(array.T)
        return array.tolist()

    expected = np.zeros((4, 4))
    expected[1:3, ::2] = 2
    assert run_ranks(2, body) == [expected.tolist()] * 2


def test_ranks_may_differ_in_layout():
    def body(rank):
        array = np.arange(6.0).reshape(2, 3)
        array = np.asfortranarray(array) if rank else array
        dist.all_reduce(array)
        return array.tolist()

    assert run_ranks(2, body) == [[[0, 2, 4], [6, 8, 10]]] * 2


def test_outside_the_group_nothing_happens_but_a_warning():
    array = np.ones(1)
    calls = {
        "all_reduce": lambda **o: dist.all_reduce(array, **o),
        "broadcast": lambda **o: dist.broadcast(array, 0, **o),
        "all_gather": lambda **o: dist.all_gather([array], array, **o),
        "all_gather_single": lambda **o: dist.all_gather_single(array, array, **o),
        "barrier": dist.barrier,
        "reduce": lambda **o: dist.reduce(array, 0, **o),
        "reduce_scatter": lambda **o: dist.reduce_scatter(array, [array], **o),
        "reduce_scatter_single": lambda **o: dist.reduce_scatter_single(
            array, array, **o
        ),
        "gather": lambda **o: dist.gather(array, [array], **o),
        "scatter": lambda **o: dist.scatter(array, [array], **o),
        "all_to_all": lambda **o: dist.all_to_all([array], [array], **o),
        "all_to_all_single": lambda **o: dist.all_to_all_single(array, array, **o),
    }

    def body(rank):
        for name, call in calls.items():
            text = f"Running {name} on global rank 0 which does not belong to the given"
            for async_op in (False, True):
                with pytest.warns(UserWarning, match=text):
                    assert call(group=OUTSIDE, async_op=async_op) is None
        return array.tolist()

    assert run_ranks(1, body) == [[1]]


def test_a_timeout_names_the_ranks_that_are_missing():
    meet = threading.Barrier(4)
    message = r"all_reduce.* #2 on group '0'.*limit 1\.00 s.*missing \[2, 3\]"

    def body(rank):
        dist.barrier()
        if rank < 2:
            with pytest.raises(dist.CollectiveTimeoutError, match=message) as caught:
                dist.all_reduce(np.zeros(3), timeout=timedelta(seconds=1))
            assert isinstance(caught.value, TimeoutError)
            assert caught.value.ranks == [2, 3]
        meet.wait(LIMIT)
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError, match=r"broken since|reports"):
            dist.all_reduce(np.zeros(1))  # on every rank, and at once
        assert time.monotonic() - start < patient(1, start)

    run_ranks(4, body)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dist.barrier(timeout=5),
        lambda: dist.monitored_barrier(timeout=5),
        lambda: dist.all_reduce(np.zeros(1), timeout=5),
        lambda: dist.recv(np.zeros(1), 0, timeout=5),
        lambda: dist.all_gather_object([None], 1, timeout=5),
        lambda: dist.empty_shared(1, np.float32, timeout=5),
        lambda: dist.new_group(timeout=5),
        lambda: dist.barrier(async_op=True).wait(5),
        lambda: dist.group.WORLD.set_timeout(5),
        lambda: dist.HashStore().wait(["k"], 5),
        lambda: dist.HashStore().set_timeout(5),
        lambda: dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=5),
    ],
)
def test_timeouts_are_timedeltas(call):
    """The error says what to write."""
    told = r"of type datetime\.timedelta, got 5: pass timedelta\(seconds=5\)"

    def body(rank):
        with pytest.raises(TypeError, match=told):
            call()

    run_ranks(1, body)


def test_bad_arrays_are_refused_by_name():
    def body(rank):
        for array in (5, [1.0], None):
            with pytest.raises(
                TypeError, match="Expected parameter `tensor` of an array"
            ):
                dist.all_reduce(array)
        locked = np.zeros(2)
        locked.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            dist.all_reduce(locked)
        dist.broadcast(locked, 0)  # only read here

    run_ranks(1, body)


def test_all_gather_takes_uneven_lists():
    def body(rank):
        parts = [np.zeros(n) for n in (2, 0, 3)]
        mine = np.full(len(parts[rank]), float(rank))
        mine.flags.writeable = False
        dist.all_gather(parts, mine)
        return [part.tolist() for part in parts]

    assert run_ranks(3, body) == [[[0, 0], [], [2, 2, 2]]] * 3
