"""What reduce and the reduce_scatters do, refuse and say; ranks are threads."""

import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from harness.ranks import run_ranks


@pytest.mark.parametrize("options", [{"dst": 1}, {"group_dst": 1}])
def test_reduce_writes_on_the_destination_only(options):
    def body(rank):
        array = np.arange(3.0) + rank
        array.flags.writeable = rank == 1
        dist.reduce(array, **options)
        work = dist.reduce(array, op=ReduceOp.MAX, async_op=True, **options)
        assert work.wait()
        return array.tolist()

    assert run_ranks(3, body) == [[0, 1, 2], [3, 6, 9], [2, 3, 4]]


def test_reduce_needs_a_destination():
    def body(rank):
        with pytest.raises(ValueError, match="Must specify global_rank or group_rank"):
            dist.reduce(np.zeros(1))
        with pytest.raises(ValueError, match="Can't specify both group_rank and"):
            dist.reduce(np.zeros(1), 0, group_dst=0)
        with pytest.raises(RuntimeError, match="reduce: invalid root rank: 5; it must"):
            dist.reduce(np.zeros(1), 5)

    run_ranks(2, body)


def test_reduce_scatter_takes_lists_of_any_sizes():
    def body(rank):
        inputs = [np.full(n, float(rank + n)) for n in (0, 2, 3)]
        for array in inputs:
            array.flags.writeable = False
        output = np.empty(len(inputs[rank]))
        dist.reduce_scatter(output, inputs)
        return output.tolist()

    assert run_ranks(3, body) == [[], [9, 9], [12, 12, 12]]


@pytest.mark.parametrize("shape", [(6,), (3, 2), (2, 3)])
def test_reduce_scatter_single_takes_one_array(shape):
    def body(rank):
        output = np.empty(2)
        dist.reduce_scatter_single(
            output, np.arange(6.0).reshape(shape), ReduceOp.PREMUL_SUM(rank)
        )
        return output.tolist()

    assert run_ranks(3, body) == [[0, 3], [6, 9], [12, 15]]


def test_reduce_scatter_refuses():
    def body(rank):
        one, two, odd = np.zeros(1), np.zeros(2), np.zeros(1, "c8")
        for output, inputs, error, message in [
            (one, (one, one), TypeError, r"`input_list` of type list.*'tuple'"),
            (
                one,
                [one],
                RuntimeError,
                r"input tensor list at index 0 \(expected length 2, got 1",
            ),
            (one, [one, np.zeros(1, "f4")], ValueError, "found float64 and float32"),
            (one, [one, 5], TypeError, "parameter `input_list` of an array type"),
            (5, [one, one], TypeError, "Expected parameter `output` of an array type"),
            (
                np.float64(5),
                [one, one],
                TypeError,
                r"numpy.array\(...\) makes an",
            ),
            (
                [5.0],
                [one, one],
                TypeError,
                r"'list'> instead. numpy.array\(",
            ),
            (None, [one, one], TypeError, "'NoneType'> instead.$"),
            (np.zeros(3), [one, one], ValueError, "has 3 elements, expected 1"),
        ]:
            with pytest.raises(error, match=message):
                dist.reduce_scatter(output, inputs)
        with pytest.raises(ValueError, match="found float32 and float64"):
            dist.reduce_scatter_single(one.astype("f4"), two)
        with pytest.raises(ValueError, match="has 3 elements, expected 2"):
            dist.reduce_scatter_single(one, np.zeros(3))
        with pytest.raises(ValueError, match="reduce_scatter does not support RedOp"):
            dist.reduce_scatter(odd, [odd, odd], ReduceOp.MAX)
        dist.barrier()  # the group still works

    run_ranks(2, body)


def test_the_older_name_warns():
    def body(rank):
        output = np.zeros(1)
        with pytest.warns(FutureWarning, match="use `allhands.reduce_scatter_single`"):
            dist.reduce_scatter_tensor(output, np.ones(1))
        return output.tolist()

    assert run_ranks(1, body) == [[1]]  # one thread: pytest's catching is global


@pytest.mark.parametrize("count", [3, 100_003])
@pytest.mark.parametrize("dtype", ["f2", "f4", "c8", "i4"])
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT])
def test_a_scan_has_the_bits_of_an_all_reduce_of_those_up_to_it(count, dtype, op):
    def values(rank):
        numbers = np.random.default_rng(rank).uniform(-3, 3, count)
        return numbers.astype(dtype)

    def body(rank):
        groups = [dist.new_group(range(end)) for end in range(1, 5)]
        until = []
        for end, group in enumerate(groups, 1):
            total = values(rank)
            if rank < end:
                dist.all_reduce(total, op, group)
            until.append(total)
            dist.broadcast(until[-1], 0)  # what the ranks before `end` have
        inclusive, exclusive = np.empty(count, dtype), np.full(count, 7, dtype)
        dist.scan(inclusive, values(rank), op)
        dist.exscan(exclusive, values(rank), op)
        assert inclusive.tobytes() == until[rank].tobytes()
        before = until[rank - 1] if rank else np.full(count, 7, dtype)
        assert exclusive.tobytes() == before.tobytes()

    run_ranks(4, body)


@pytest.mark.parametrize("name", ["scan", "exscan"])
def test_a_scan_refuses(name):
    def body(rank):
        call, array = getattr(dist, name), np.zeros(8)
        with pytest.raises(ValueError, match="share memory but are not the same array"):
            call(array[1:5], array[2:6])
        with pytest.raises(ValueError, match=f"{name}: the output has 3 .* expected 4"):
            call(np.zeros(3), np.zeros(4))
        with pytest.raises(ValueError, match="found float64 and float32"):
            call(np.zeros(4, "f4"), np.zeros(4))
        with pytest.raises(RuntimeError, match="BAND"):
            call(np.zeros(4), np.zeros(4), ReduceOp.BAND)
        call(array, array)  # in place
        dist.barrier()

    run_ranks(2, body)
