"""Every collective on random pieces of shared arrays; see test_properties.

Of every fifth case some ranks' arrays are private, of every fourth some are strided.
What an operation leaves of the shared memory when it returns is filled for the next one
at once, so a rank that still read it would get wrong data.
"""

import random
import threading

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import allhands as dist
from harness.cases import OPERATIONS, draw
from harness.ranks import run_ranks

CASES = {1: 20, 2: 60, 3: 50, 5: 30, 8: 20}
COUNTS = [300, 1024, 2051, 4096, 5000]
BYTES = 2_000_000  # of a rank's shared array


class Pool:
    """Gives the arrays of one case after another places in each rank's shared array."""

    def __init__(self):
        self._rank = threading.local()

    def open(self):
        self._rank.array = dist.empty_shared(BYTES, np.uint8)

    def begin(self, case, rank):
        self._rank.free = self._rank.array[16 * rank :]
        self._rank.random = random.Random(f"{case.seed} {case.number} {rank}")
        self._rank.private = 0.3 if case.number % 5 == 0 else 0

    def __call__(self, num_bytes):
        mine = self._rank
        if mine.random.random() < mine.private or num_bytes > mine.free.size:
            return np.empty(num_bytes, np.uint8)
        block, mine.free = mine.free[:num_bytes], mine.free[num_bytes:]
        return block


@pytest.mark.parametrize("size", CASES)
@pytest.mark.parametrize("name", OPERATIONS)
@settings(
    max_examples=1,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a seed has no smaller form
)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_cases(name, size, seed):
    print(f"{name} on {size} ranks: {CASES[size]} cases of seed {seed}")
    pool = Pool()
    cases = list(draw(name, size, seed, CASES[size], COUNTS, pool))

    def body(rank):
        pool.open()
        return [perform(rank, case) for case in cases]

    def perform(rank, case):
        pool.begin(case, rank)
        try:
            return OPERATIONS[name](rank, case)
        except Exception as error:
            raise AssertionError(f"{name}, {case}") from error

    first, *others = run_ranks(size, body)
    assert all(other == first for other in others)  # the same bits on every rank
