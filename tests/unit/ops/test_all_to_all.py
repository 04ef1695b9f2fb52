"""all_to_all and all_to_all_single: a part from each rank to each."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks


def test_all_to_all_exchanges_arrays_of_any_sizes():
    def body(rank):
        inputs = [np.full(rank + to, 10.0 * rank + to) for to in range(3)]
        for array in inputs:
            array.flags.writeable = False
        outputs = [np.zeros(source + rank) for source in range(3)]
        dist.all_to_all(outputs, inputs)
        return [array.tolist() for array in outputs]

    assert run_ranks(3, body) == [
        [[10.0 * source + rank] * (source + rank) for source in range(3)]
        for rank in range(3)
    ]


def test_all_to_all_single_shares_rows_evenly():
    def body(rank):
        output = np.zeros((4, 3))
        dist.all_to_all_single(output, np.full((4, 3), float(rank)).T.copy().T)
        return output[:, 0].tolist()

    assert run_ranks(2, body) == [[0, 0, 1, 1]] * 2


def test_all_to_all_single_splits_rows_as_told():
    def body(rank):
        splits = [[1, 3], [2, 0]]
        received = [splits[source][rank] for source in range(2)]
        output = np.zeros((sum(received), 2))
        rows = 10.0 * rank + np.arange(sum(splits[rank]))
        work = dist.all_to_all_single(
            output, np.stack([rows, rows], 1), received, splits[rank], async_op=True
        )
        work.wait()
        return output[:, 1].tolist()

    assert run_ranks(2, body) == [[0, 10, 11], [1, 2, 3]]


def test_all_to_all_refuses():
    def body(rank):
        one, four = np.zeros(1), np.zeros(4)
        for outputs, inputs, error, message in [
            ((one, one), [one, one], TypeError, "`output_tensor_list` of type list"),
            ([one, one], (one, one), TypeError, "`input_tensor_list` of type list"),
            (
                [one],
                [one, one],
                RuntimeError,
                r"output tensor list at index 0 \(expected length 2",
            ),
            (
                [one, one],
                [one],
                RuntimeError,
                r"input tensor list at index 0 \(expected length 2",
            ),
            ([one, one > 0], [one, one], ValueError, "found float64 and bool"),
        ]:
            with pytest.raises(error, match=message):
                dist.all_to_all(outputs, inputs)
        for splits, message in [
            (([1, 2], None), "Split sizes doesn't match total dim 0 size: output"),
            (([5, -1], None), r"\[5, -1\] for 4 rows"),
            ((None, [4]), "Number of tensor splits not equal to group size: i"),
        ]:
            with pytest.raises(RuntimeError, match=message):
                dist.all_to_all_single(four, four.copy(), *splits)
        with pytest.raises(RuntimeError, match="3 does not divide equally across 2 ra"):
            dist.all_to_all_single(np.zeros(3), np.zeros(3))
        with pytest.raises(RuntimeError, match="has no dimensions"):
            dist.all_to_all_single(np.zeros(()), np.zeros(()))
        dist.barrier()  # the group still works

    run_ranks(2, body)
