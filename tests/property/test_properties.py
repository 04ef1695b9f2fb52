"""Every operation on every dtype, layout, reduce op, world size and count.

Each example is one world that runs a list of random cases, with guard bytes around
every array, against NumPy in float64; results must have the same bits on every rank.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allhands as dist
from allhands import ReduceOp
from harness.arrays import (
    DTYPES,
    LAYOUTS,
    Guarded,
    check_reduced,
    random_values,
    supports,
)
from harness.ranks import run_ranks

SIZES = [1, 2, 3, 5, 8]
OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]

property_test = settings(max_examples=40, deadline=None)
sizes = pytest.mark.parametrize("size", SIZES)


@st.composite
def cases(draw, size):
    """(dtype, count, seed, layouts by rank) of one call."""
    counts = [0, 1, 7, size - 1, size + 1, 1000, 40_003]
    count = draw(st.sampled_from(counts))
    layouts = draw(st.lists(st.sampled_from(LAYOUTS), min_size=size, max_size=size))
    dtype = draw(st.sampled_from(DTYPES))
    return dtype, count, draw(st.integers(0, 2**32 - 1)), layouts


def inputs_of(dtype, count, seed, size):
    """What each rank contributes; every rank can work it out."""
    generator = np.random.default_rng(seed)
    return [random_values(generator, dtype, count) for _ in range(size)]


def run_cases(size, data, call):
    """Runs `call(rank, case)` for a list of cases; results must agree bit for bit."""
    drawn = data.draw(st.lists(cases(size), min_size=1, max_size=6))

    def body(rank):
        return [call(rank, *case) for case in drawn]

    first, *others = run_ranks(size, body)
    assert all(other == first for other in others)


@property_test
@given(data=st.data())
@sizes
def test_all_reduce(size, data):
    op = data.draw(st.sampled_from(OPS))

    def call(rank, dtype, count, seed, layouts):
        inputs = inputs_of(dtype, count, seed, size)
        guarded = Guarded(inputs[rank], layouts[rank])
        if not supports(op, dtype):
            with pytest.raises((ValueError, TypeError, RuntimeError), match=op):
                dist.all_reduce(guarded.array, getattr(ReduceOp, op))
            np.testing.assert_array_equal(guarded.values(), inputs[rank].reshape(-1))
        else:
            dist.all_reduce(guarded.array, getattr(ReduceOp, op))
            check_reduced(guarded.values(), inputs, op)
        guarded.check()
        return guarded.values().tobytes() if supports(op, dtype) else b""

    run_cases(size, data, call)


@property_test
@given(data=st.data())
@sizes
def test_broadcast(size, data):
    root = data.draw(st.integers(0, size - 1))

    def call(rank, dtype, count, seed, layouts):
        inputs = inputs_of(dtype, count, seed, size)
        guarded = Guarded(inputs[rank], layouts[rank])
        dist.broadcast(guarded.array, root)
        guarded.check()
        assert guarded.values().tobytes() == inputs[root].tobytes()

    run_cases(size, data, call)


@property_test
@given(data=st.data(), single=st.booleans(), async_op=st.booleans())
@sizes
def test_all_gather(size, data, single, async_op):
    def call(rank, dtype, count, seed, layouts):
        inputs = inputs_of(dtype, count, seed, size)
        mine = Guarded(inputs[rank], layouts[rank])
        if single:
            outputs = [Guarded(np.zeros(count * size, dtype), layouts[-1])]
            work = dist.all_gather_single(
                outputs[0].array, mine.array, async_op=async_op
            )
        else:
            outputs = [Guarded(np.zeros(count, dtype), layout) for layout in layouts]
            arrays = [output.array for output in outputs]
            work = dist.all_gather(arrays, mine.array, async_op=async_op)
        if async_op:
            work.wait()
        for guarded in (mine, *outputs):
            guarded.check()
        assert mine.values().tobytes() == inputs[rank].tobytes()  # only read
        gathered = b"".join(output.values().tobytes() for output in outputs)
        assert gathered == b"".join(values.tobytes() for values in inputs)

    run_cases(size, data, call)
