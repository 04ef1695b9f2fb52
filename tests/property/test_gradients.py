"""`average_gradients` of random lists of arrays, against NumPy in float64."""

import random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import allhands as dist
from harness.arrays import (
    BOOL,
    DTYPES,
    LAYOUTS,
    Guarded,
    as_tensors,
    check_reduced,
    random_values,
)
from harness.ranks import run_ranks

LISTS = 40  # of each example, in one world
COUNTS = [0, 1, 2, 3, 7, 64, 1000]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@settings(
    max_examples=4,
    # A seed has no smaller form.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_lists(size, seed):
    check(size, seed)


def test_random_lists_of_tensors_and_arrays():
    pytest.importorskip("torch")
    check(3, random.randrange(2**32), has_tensors=True)


def check(size, seed, has_tensors=False):
    print(f"{size} ranks: {LISTS} lists of seed {seed}")

    def body(rank):
        return [average(rank, size, (seed, i), has_tensors) for i in range(LISTS)]

    first, *others = run_ranks(size, body)
    assert all(other == first for other in others)  # the same bits on every rank


def average(rank, size, seed, has_tensors):
    """One call on one rank, held against what it must give; its bytes."""
    generator = np.random.default_rng(seed)  # alike on all ranks
    kinds = [DTYPES[i] for i in generator.integers(0, len(DTYPES), 3)]
    parts = [
        [random_values(generator, dtype, count) for _ in range(size)]
        for dtype in (kinds[i % 3] for i in range(generator.integers(0, 12)))
        if dtype != BOOL
        for count in generator.choice(COUNTS, 1)
    ]
    cap, form = generator.choice([1e-6, 1e-3, 1]), generator.integers(4)
    own = np.random.default_rng((*seed, rank))
    arrays = [
        Guarded(values[rank], LAYOUTS[own.integers(len(LAYOUTS))]) for values in parts
    ]
    given = [guarded.array for guarded in arrays]
    if has_tensors and rank % 2:
        [given] = as_tensors([given])
    work = dist.average_gradients(
        (array for array in given) if form % 2 else given,
        async_op=form > 1,
        bucket_cap_mb=cap,
    )
    assert (work is not None) == (form > 1)
    if work is not None:
        assert work.wait()
        assert work.is_success()
    for guarded, values in zip(arrays, parts, strict=True):
        guarded.check()
        check_reduced(guarded.values(), values, "AVG")
    return [guarded.values().tobytes() for guarded in arrays]
