"""The reference's collectives: each number that goes in, each that must come out."""

import threading
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from harness.ranks import LIMIT, outcomes, run_ranks


def complex_pair(xp, rank, step):
    """[1+1j, 2+2j], and `step` times 1+1j more for each rank."""
    start = xp.asarray([1 + 1j, 2 + 2j], dtype=xp.complex64)
    return start + step * rank * (1 + 1j)


def diagonal(*numbers):
    """Complex numbers whose two parts are equal."""
    return [n * (1 + 1j) for n in numbers]


def split(array, sizes):
    """Pieces of `array` of these sizes, as views."""
    ends = np.cumsum(sizes)
    return [array[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def lists(arrays):
    return [array.tolist() for array in arrays]


def flat(rows):
    return [number for row in rows for number in row]


def test_broadcast(xp):
    def body(rank):
        tensor = xp.arange(4) if rank == 1 else xp.zeros(4, dtype=xp.int64)
        dist.broadcast(tensor, src=1)
        return tensor.tolist()

    assert run_ranks(3, body) == [[0, 1, 2, 3]] * 3


def test_all_reduce(xp):
    def body(rank):
        tensor = xp.arange(2, dtype=xp.int64) + 1 + 2 * rank
        before = tensor.tolist()
        dist.all_reduce(tensor, op=ReduceOp.SUM)
        return before, tensor.tolist()

    assert run_ranks(2, body) == [([1, 2], [4, 6]), ([3, 4], [4, 6])]


def test_all_reduce_of_complex(xp):
    def body(rank):
        tensor = complex_pair(xp, rank, 2)
        before = tensor.tolist()
        dist.all_reduce(tensor, op=ReduceOp.SUM)
        return before, tensor.tolist()

    first, second = diagonal(1, 2), diagonal(3, 4)
    total = diagonal(4, 6)
    assert run_ranks(2, body) == [(first, total), (second, total)]


def test_all_reduce_async_then_use_of_the_result(xp):
    """The example of CUDA streams without streams: wait() alone makes it 101."""

    def body(rank):
        output = xp.asarray([rank])
        handle = dist.all_reduce(output, async_op=True)
        assert handle.wait() is True
        assert handle.is_completed()
        output += 100
        return output.tolist()

    assert run_ranks(2, body) == [[101]] * 2


def test_a_future_of_the_average(xp):
    """The example's hook for gradients, without the model that would call it."""

    def all_reduce(group, buffer):
        group = group or dist.group.WORLD
        buffer /= group.size()
        return dist.all_reduce(buffer, group=group, async_op=True).get_future()

    def body(rank):
        buffer = xp.ones(3) * (rank + 1)
        future = all_reduce(None, buffer)
        result = future.wait() if hasattr(future, "wait") else future.result()
        return result[0].tolist(), buffer.tolist()

    assert run_ranks(2, body) == [([1.5] * 3, [1.5] * 3)] * 2


def test_wait_with_a_limit(xp):
    late = threading.Event()

    def body(rank):
        tensor = xp.ones(1)
        if rank == 1:
            assert late.wait(LIMIT)
        work = dist.all_reduce(tensor, async_op=True)
        if rank == 0:
            with pytest.raises(RuntimeError, match=r"did not finish in 0\.10 s;"):
                work.wait(timedelta(seconds=0.1))
            late.set()
        work.wait()
        return tensor.tolist()

    assert run_ranks(2, body) == [[2.0]] * 2


def test_reduce(xp):
    def body(rank):
        tensor = xp.arange(2) + 1 + 2 * rank
        dist.reduce(tensor, dst=0, op=ReduceOp.SUM)
        return tensor.tolist()

    assert run_ranks(2, body) == [[4, 6], [3, 4]]  # rank 1 keeps what it had


def test_all_gather(xp):
    def body(rank):
        tensor_list = [xp.zeros(2, dtype=xp.int64) for _ in range(2)]
        tensor = xp.arange(2, dtype=xp.int64) + 1 + 2 * rank
        dist.all_gather(tensor_list, tensor)
        return lists(tensor_list)

    assert run_ranks(2, body) == [[[1, 2], [3, 4]]] * 2


def test_all_gather_of_complex(xp):
    def body(rank):
        tensor_list = [xp.zeros(2, dtype=xp.complex64) for _ in range(2)]
        dist.all_gather(tensor_list, complex_pair(xp, rank, 2))
        return lists(tensor_list)

    assert run_ranks(2, body) == [[diagonal(1, 2), diagonal(3, 4)]] * 2


@pytest.mark.parametrize("name", ["all_gather_single", "all_gather_into_tensor"])
@pytest.mark.filterwarnings("ignore:.*all_gather_into_tensor:FutureWarning")
def test_all_gather_into_one(xp, name):
    all_gather = getattr(dist, name)

    def body(rank):
        tensor_in = xp.arange(2, dtype=xp.int64) + 1 + 2 * rank
        concatenated = xp.zeros(2 * 2, dtype=xp.int64)
        all_gather(concatenated, tensor_in)
        stacked = xp.zeros((2, 2), dtype=xp.int64)
        all_gather(stacked, tensor_in)
        return concatenated.tolist(), stacked.tolist()

    assert run_ranks(2, body) == [([1, 2, 3, 4], [[1, 2], [3, 4]])] * 2


@pytest.mark.filterwarnings("ignore:.*all_gather_coalesced:FutureWarning")
def test_all_gather_coalesced(xp):
    inputs = [
        [[[1, 1], [1, 1]], [2], [3, 3]],
        [[[3, 3], [3, 3]], [5], [1, 1]],
    ]

    def body(rank):
        mine = [xp.asarray(values) for values in inputs[rank]]
        outputs = [[xp.asarray(values) * 0 - 1 for values in row] for row in inputs]
        dist.all_gather_coalesced(outputs, mine)
        return [lists(row) for row in outputs]

    assert run_ranks(2, body) == [inputs] * 2


@pytest.mark.parametrize("async_ops", [False, True])
def test_coalescing_manager(xp, async_ops):
    def body(rank):
        tensors = [xp.ones(i + 1) * (rank + 1) for i in range(3)]
        with dist._coalescing_manager(async_ops=async_ops) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        if async_ops:
            manager.wait()
        return lists(tensors)

    assert run_ranks(2, body) == [[[3.0], [3.0] * 2, [3.0] * 3]] * 2


def test_gather(xp):
    def body(rank):
        tensor = xp.ones(2) + rank
        gather_list = [xp.zeros_like(tensor) for _ in range(2)] if rank == 0 else None
        dist.gather(tensor, gather_list, dst=0)
        return gather_list and lists(gather_list)

    assert run_ranks(2, body) == [[[1.0, 1.0], [2.0, 2.0]], None]


def test_scatter(xp):
    def body(rank):
        output = xp.zeros(2)
        scatter_list = [xp.ones(2), xp.ones(2) * 5] if dist.get_rank() == 0 else None
        dist.scatter(output, scatter_list, src=0)
        return output.tolist()

    assert run_ranks(2, body) == [[1.0, 1.0], [5.0, 5.0]]


def test_reduce_scatter(xp):
    def body(rank):
        output = xp.zeros(2, dtype=xp.int64)
        dist.reduce_scatter(output, [xp.arange(2) + 2 * i for i in range(2)])
        return output.tolist()

    assert run_ranks(2, body) == [[0, 2], [4, 6]]


@pytest.mark.parametrize("name", ["reduce_scatter_single", "reduce_scatter_tensor"])
@pytest.mark.parametrize("shape", [(4,), (2, 2)], ids=["concatenated", "stacked"])
@pytest.mark.filterwarnings("ignore:.*reduce_scatter_tensor:FutureWarning")
def test_reduce_scatter_of_one(xp, name, shape):
    def body(rank):
        output = xp.zeros(2, dtype=xp.int64)
        tensor_in = xp.arange(2 * 2, dtype=xp.int64).reshape(shape)
        getattr(dist, name)(output, tensor_in)
        return output.tolist()

    assert run_ranks(2, body) == [[0, 2], [4, 6]]


ROWS = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_all_to_all_single(xp):
    def body(rank):
        output = xp.zeros(4, dtype=xp.int64)
        dist.all_to_all_single(output, xp.arange(4) + rank * 4)
        return output.tolist()

    assert run_ranks(4, body) == ROWS


def test_all_to_all_single_is_a_scatter_from_each_rank(xp):
    def body(rank):
        output = xp.zeros(4, dtype=xp.int64)
        scatter_list = split(xp.arange(4) + rank * 4, [1] * 4)
        gather_list = split(output, [1] * 4)
        for i in range(4):
            dist.scatter(gather_list[i], scatter_list if i == rank else [], src=i)
        return output.tolist()

    assert run_ranks(4, body) == ROWS


STARTS, LENGTHS = [0, 10, 20, 30], [6, 9, 5, 7]
INPUT_SPLITS = [[2, 2, 1, 1], [3, 2, 2, 2], [2, 1, 1, 1], [2, 2, 2, 1]]
OUTPUT_SPLITS = [[2, 3, 2, 2], [2, 2, 1, 2], [1, 2, 1, 2], [1, 2, 1, 1]]
PIECES = [
    [[0, 1], [10, 11, 12], [20, 21], [30, 31]],
    [[2, 3], [13, 14], [22], [32, 33]],
    [[4], [15, 16], [23], [34, 35]],
    [[5], [17, 18], [24], [36]],
]


def uneven_input(xp, rank):
    return xp.arange(LENGTHS[rank]) + STARTS[rank]


def test_all_to_all_single_with_uneven_splits(xp):
    def body(rank):
        output = xp.zeros(sum(OUTPUT_SPLITS[rank]), dtype=xp.int64)
        dist.all_to_all_single(
            output, uneven_input(xp, rank), OUTPUT_SPLITS[rank], INPUT_SPLITS[rank]
        )
        return output.tolist()

    assert run_ranks(4, body) == [flat(row) for row in PIECES]


COMPLEX_ROWS = [diagonal(*range(i + 1, 17, 4)) for i in range(4)]


def four_complex(xp, rank):
    start = xp.asarray(diagonal(1, 2, 3, 4), dtype=xp.complex64)
    return start + 4 * rank * (1 + 1j)


def test_all_to_all_single_of_complex(xp):
    def body(rank):
        output = xp.zeros(4, dtype=xp.complex64)
        dist.all_to_all_single(output, four_complex(xp, rank))
        return output.tolist()

    assert run_ranks(4, body) == COMPLEX_ROWS


def test_complex_into_int64_as_the_page_prints_it_is_refused(xp):
    """The page's output array is int64 by mistake: say so, on every rank."""

    def body(rank):
        output = xp.zeros(4, dtype=xp.int64)
        dist.all_to_all_single(output, four_complex(xp, rank))

    for error in outcomes(4, body):
        assert isinstance(error, ValueError)
        assert "complex64" in str(error)
        assert "int64" in str(error)


def test_all_to_all(xp):
    def body(rank):
        inputs = split(xp.arange(4) + rank * 4, [1] * 4)
        outputs = split(xp.zeros(4, dtype=xp.int64), [1] * 4)
        dist.all_to_all(outputs, inputs)
        return flat(lists(outputs))

    assert run_ranks(4, body) == ROWS


def test_all_to_all_is_a_scatter_from_each_rank(xp):
    def body(rank):
        inputs = split(xp.arange(4) + rank * 4, [1] * 4)
        outputs = split(xp.zeros(4, dtype=xp.int64), [1] * 4)
        for i in range(4):
            dist.scatter(outputs[i], inputs if i == rank else [], src=i)
        return flat(lists(outputs))

    assert run_ranks(4, body) == ROWS


def test_all_to_all_with_uneven_splits(xp):
    def body(rank):
        inputs = split(uneven_input(xp, rank), INPUT_SPLITS[rank])
        outputs = [xp.zeros(n, dtype=xp.int64) for n in OUTPUT_SPLITS[rank]]
        dist.all_to_all(outputs, inputs)
        return lists(outputs)

    assert run_ranks(4, body) == PIECES


def test_all_to_all_of_complex(xp):
    def body(rank):
        inputs = split(four_complex(xp, rank), [1] * 4)
        outputs = split(xp.zeros(4, dtype=xp.complex64), [1] * 4)
        dist.all_to_all(outputs, inputs)
        return flat(lists(outputs))

    assert run_ranks(4, body) == COMPLEX_ROWS


def test_barrier():
    def body(rank):
        dist.barrier()
        return dist.barrier(async_op=True).wait()

    assert run_ranks(3, body) == [True] * 3


@pytest.mark.parametrize(
    ("op", "result"),
    [
        (ReduceOp.SUM, [9, 6]),
        (ReduceOp.PRODUCT, [12, 6]),
        (ReduceOp.MIN, [1, 1]),
        (ReduceOp.MAX, [6, 3]),
        (ReduceOp.BAND, [0, 0]),
        (ReduceOp.BOR, [7, 3]),
        (ReduceOp.BXOR, [5, 0]),
        (ReduceOp.AVG, [3, 2]),
        (ReduceOp.PREMUL_SUM(2), [18, 12]),
    ],
    ids=str,
)
def test_reduce_operations(xp, op, result):
    """Each operation that the tutorial and the reference list."""
    inputs = [[1, 1], [6, 2], [2, 3]]

    def body(rank):
        tensor = xp.asarray(inputs[rank])
        dist.all_reduce(tensor, op)
        return tensor.tolist()

    assert run_ranks(3, body) == [result] * 3


@pytest.mark.parametrize("op", [ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT], ids=str)
def test_reduce_operations_of_complex(xp, op):
    """The reference has no MAX, MIN, PRODUCT of complex; ours has PRODUCT."""

    def body(rank):
        tensor = complex_pair(xp, rank, 1)
        dist.all_reduce(tensor, op)
        return tensor.tolist()

    if op == ReduceOp.PRODUCT:
        product = [(1 + 1j) * (2 + 2j), (2 + 2j) * (3 + 3j)]
        assert run_ranks(2, body) == [product] * 2
        return
    for error in outcomes(2, body):
        assert isinstance(error, ValueError)
        assert f"does not support RedOpType.{op.name} on complex" in str(error)
