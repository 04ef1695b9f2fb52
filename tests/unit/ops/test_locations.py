"""maxloc, minloc and functions of arrays, against NumPy; ranks are threads."""

from functools import reduce

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks

SIZES = [1, 2, 3, 5, 8]


def values_of(size, shape, dtype, seed):
    """Of all ranks: few different ones, so that many are equal, and some NaN."""
    rng = np.random.default_rng([size, seed])
    values = rng.integers(-2, 3, (size, *shape)).astype(dtype)
    if values.dtype.kind == "f" and seed % 2:
        values[rng.random(values.shape) < 0.2] = np.nan
    return values


def expected_of(values, find):
    """The extreme values, and the first rank that has each; NaN is the most extreme."""
    where = find(values, axis=0)  # NumPy's argmax and argmin take the first, NaN first
    return np.take_along_axis(values, where[np.newaxis], 0)[0], where


@pytest.mark.parametrize("dtype", ["f8", "f2", "i8", "?"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 1000), (0,)])
@pytest.mark.parametrize("size", SIZES)
def test_extreme_values_and_their_ranks(size, shape, dtype):
    def body(rank):
        for seed, (op, find) in enumerate(
            [(dist.maxloc, np.argmax), (dist.minloc, np.argmin)] * 2
        ):
            values = values_of(size, shape, dtype, seed // 2)
            mine = values[rank].copy(), np.full(shape, rank)
            before = [np.array(part) for part in mine]
            got = dist.all_reduce_object(mine, op)
            for part, wanted in zip(got, expected_of(values, find), strict=True):
                assert np.array_equal(part, wanted, equal_nan=wanted.dtype.kind == "f")
            assert got[0].dtype == values.dtype
            for part, same in zip(mine, before, strict=True):
                np.testing.assert_array_equal(part, same)

    run_ranks(size, body)


def test_numbers_with_locations_of_any_kind():
    def body(rank):
        assert dist.all_reduce_object((1.5, -rank), dist.maxloc) == (1.5, -2)
        assert dist.all_reduce_object((-rank, rank), dist.minloc) == (-2, 2)
        nan = float("nan") if rank else 7.0
        value, where = dist.all_reduce_object((nan, rank), dist.minloc)
        assert (value != value, where) == (True, 1)
        pair = np.float32(rank % 2), (rank, "site")
        return dist.reduce_object(pair, op=dist.maxloc)

    assert run_ranks(3, body) == [(1.0, (1, "site")), None, None]


def test_the_operands_stay_as_they_are():
    one, other = (
        (np.array([1, 5]), np.array([0, 0])),
        (np.array([2, 4]), np.array([1, 1])),
    )
    for op, expected in (
        (dist.maxloc, [[2, 5], [1, 0]]),
        (dist.minloc, [[1, 4], [0, 1]]),
    ):
        assert [part.tolist() for part in op(one, other)] == expected
        assert [part.tolist() for part in op(other, one)] == expected
    assert [part.tolist() for part in (*one, *other)] == [
        [1, 5],
        [0, 0],
        [2, 4],
        [1, 1],
    ]


@pytest.mark.parametrize("op", [dist.maxloc, dist.minloc])
def test_arrays_of_different_shapes_are_refused(op):
    with pytest.raises(ValueError, match=r"of one shape, got \[\(2,\), \(2,\), \(1,\)"):
        op((np.ones(2), np.ones(2)), (np.ones(1), np.ones(2)))
    with pytest.raises(ValueError, match="of one shape"):
        op((np.ones(2), 0), (np.ones(2), 1))


def by_matrices(one, other):
    return one @ other


def scaled(one, other):
    """Neither commutative nor associative, and rounded."""
    return one / 3 + other


@pytest.mark.parametrize("function", [by_matrices, scaled, np.hypot, np.logaddexp])
@pytest.mark.parametrize("size", SIZES)
def test_functions_of_arrays_go_in_rank_order_with_the_same_bits(size, function):
    rng = np.random.default_rng(size)
    arrays = rng.normal(size=(size, 40, 40)).astype(np.float32)

    def body(rank):
        total = dist.all_reduce_object(arrays[rank], function)
        here = dist.reduce_object(
            arrays[rank][:, ::-1], group_dst=size - 1, op=function
        )
        return total.tobytes(), None if here is None else here.tobytes()

    results = run_ranks(size, body)
    assert [total for total, _ in results] == [
        reduce(function, arrays).tobytes()
    ] * size
    flipped = [np.ascontiguousarray(array[:, ::-1]) for array in arrays]
    np.testing.assert_allclose(
        np.frombuffer(results[-1][1], np.float32).reshape(40, 40),
        reduce(function, flipped),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_function_as_op_of_an_array_operation_is_told_where_to_go():
    def body(rank):
        text = "op must be an allhands.ReduceOp.*all_reduce_object .* take a function"
        with pytest.raises(TypeError, match=text):
            dist.all_reduce(np.ones(1), np.maximum)

    run_ranks(1, body)


@pytest.mark.parametrize("op", [dist.maxloc, dist.minloc])
def test_arrays_of_different_dtypes_are_refused(op):
    ranks = np.arange(2)
    with pytest.raises(
        TypeError, match=r"values .* of one dtype, got int64 and float6"
    ):
        op((np.array([1, 2]), ranks), (np.array([1.5, 2.5]), ranks))
    with pytest.raises(
        TypeError, match=r"locations .* of one dtype, got int8 and int6"
    ):
        op((np.ones(2), ranks.astype("i1")), (np.zeros(2), ranks + 300))
    assert op((1, 0), (1.0, 1)) == (1, 0)  # one of the numbers as it is


@pytest.mark.parametrize("op", [dist.maxloc, dist.minloc])
@pytest.mark.parametrize("values", [[1, 5], (1, 5), "15"])
def test_values_that_would_be_compared_as_wholes_are_refused(op, values):
    kind = type(values).__name__
    with pytest.raises(TypeError, match=f"values are numbers or arrays, got a {kind}"):
        op((values, [0, 0]), (values[::-1], [1, 1]))
