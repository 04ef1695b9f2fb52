"""Every collective on random dtypes, layouts, reduce ops, roots and counts.

Each example is one world that runs many random cases, with guard bytes around every
array, against NumPy in float64. A failure names the seed and the case.
"""

import dataclasses
import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from harness.cases import OPERATIONS, draw
from harness.ranks import run_ranks

EXAMPLES = 4
CASES = {1: 80, 2: 150, 3: 120, 5: 90, 8: 60}  # an example; 2,000 per operation
TENSOR_CASES = 200  # where every other rank passes torch tensors


@pytest.mark.parametrize("size", CASES)
@pytest.mark.parametrize("name", OPERATIONS)
@settings(
    max_examples=EXAMPLES,
    # A seed has no smaller form.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_cases(name, size, seed):
    check(name, size, seed, CASES[size])


@pytest.mark.parametrize("name", OPERATIONS)
def test_random_cases_of_tensors_and_arrays(name):
    pytest.importorskip("torch")
    check(name, 3, random.randrange(2**32), TENSOR_CASES, has_tensors=True)


def check(name, size, seed, number, **options):
    """Run `number` cases of `seed` on thread ranks."""
    print(f"{name} on {size} ranks: {number} cases of seed {seed}")
    cases = [
        dataclasses.replace(case, **options) for case in draw(name, size, seed, number)
    ]

    def body(rank):
        return [perform(rank, case) for case in cases]

    def perform(rank, case):
        try:
            return OPERATIONS[name](rank, case)
        except Exception as error:
            raise AssertionError(f"{name}, {case}") from error

    first, *others = run_ranks(size, body)
    assert all(other == first for other in others)  # the same bits on every rank
