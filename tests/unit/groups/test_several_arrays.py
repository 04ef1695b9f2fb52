"""Lists of several arrays of one rank in torch's methods: each counts as a rank's."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks


def arrays(*values, dtype=np.float32):
    return [np.full(2, value, dtype) for value in values]


@pytest.mark.parametrize(
    ("op", "wanted"),
    [("SUM", 10), ("PRODUCT", 24), ("MIN", 1), ("MAX", 4), ("AVG", 5)],
)
def test_all_reduce_of_several_arrays(op, wanted):
    def body(rank):
        mine = arrays(1 + 2 * rank, 2 + 2 * rank)
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, op)
        work = dist.group.WORLD.allreduce(mine, options)
        assert work.wait()
        assert all(
            result is array for result, array in zip(work.result(), mine, strict=True)
        )
        return [array.tolist() for array in mine]

    assert run_ranks(2, body) == [[[wanted] * 2] * 2] * 2


@pytest.mark.parametrize(("op", "wanted"), [("BAND", 4), ("BOR", 7), ("BXOR", 5)])
def test_all_reduce_of_the_bits_of_several_arrays(op, wanted):
    def body(rank):
        mine = arrays(*[(6, 5), (7, 4)][rank], dtype=np.int32)
        if op == "BXOR":  # of an odd number of arrays
            mine.append(arrays(5, dtype=np.int32)[0] * rank)
        dist.group.WORLD.allreduce(mine, getattr(dist.ReduceOp, op)).wait()
        return {int(array[0]) for array in mine}

    assert run_ranks(2, body) == [{wanted}] * 2


@pytest.mark.parametrize("op", ["MIN", "MAX"])
def test_nan_wins_in_any_of_several_arrays(op):
    def body(rank):
        mine = arrays(1, np.nan if rank else 2)
        dist.group.WORLD.allreduce(mine, getattr(dist.ReduceOp, op)).wait()
        return bool(np.isnan(mine).all())

    assert run_ranks(2, body) == [True, True]


def test_broadcast_of_one_of_several_arrays():
    def body(rank):
        mine = arrays(10 * rank, 10 * rank + 1)
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 1, 1
        dist.group.WORLD.broadcast(mine, options).wait()
        return [array.tolist() for array in mine]

    assert run_ranks(2, body) == [[[11, 11], [11, 11]]] * 2


def test_all_gather_of_several_arrays():
    def body(rank):
        outputs = [arrays(0, 0, 0, 0), arrays(0, 0, 0, 0)]
        inputs = arrays(10 * rank, 10 * rank + 1)
        dist.group.WORLD.allgather(outputs, inputs).wait()
        return [[int(array[0]) for array in each] for each in outputs]

    assert run_ranks(2, body) == [[[0, 1, 10, 11]] * 2] * 2


@pytest.mark.parametrize(
    ("method", "given", "text"),
    [
        ("allreduce", [[]], "There were no tensor arguments"),
        ("allreduce", [[np.ones(1), np.ones(2)]], "invalid tensor size at index 1"),
        (
            "allreduce",
            [[np.ones(1), np.ones(1, int)]],
            "invalid tensor type at index 1",
        ),
        ("reduce", [[np.ones(1), np.ones(1)]], "requires a single-element tensor list"),
        ("allgather", [[], [np.ones(1)] * 2], "lists to have the same length"),
    ],
)
def test_lists_that_do_not_fit(method, given, text):
    def body(rank):
        for kind in ValueError, RuntimeError:  # the latter is torch's
            with pytest.raises(kind, match=text):
                getattr(dist.group.WORLD, method)(*given)

    run_ranks(2, body)


def test_a_root_tensor_that_is_not_there():
    def body(rank):
        options = dist.BroadcastOptions()
        options.rootTensor = 3
        with pytest.raises(RuntimeError, match="invalid root tensor: 3"):
            dist.group.WORLD.broadcast([np.ones(1)], options)

    run_ranks(2, body)


def test_only_the_root_has_lists():
    def body(rank):
        group, x = dist.group.WORLD, np.ones(1)
        lists = [[np.ones(1), np.ones(1)]]
        if rank:
            with pytest.raises(RuntimeError, match="empty output on non-root"):
                group.gather(lists, [x])
            with pytest.raises(RuntimeError, match="empty input on non-root"):
                group.scatter([x], lists)
        else:
            with pytest.raises(RuntimeError, match="output list containing a list wi"):
                group.gather([], [x])
            with pytest.raises(RuntimeError, match="input list containing a list wit"):
                group.scatter([x], [])

    run_ranks(2, body)
