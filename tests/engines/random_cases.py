"""Random calls of every collective on the ranks of a job; not a test by its name.

`test_engines` runs it under mpiexec, where all processes must draw the same cases.
"""

import pytest

from harness.cases import OPERATIONS, draw
from harness.ranks import run_ranks

CASES = {1: 20, 2: 40, 3: 60}


@pytest.mark.parametrize("size", CASES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_random_cases(name, size):
    cases = list(draw(name, size, len(name), CASES[size]))

    def body(rank):
        return [OPERATIONS[name](rank, case) for case in cases]

    first, *others = run_ranks(size, body)
    assert all(other == first for other in others)  # the same bits on every rank
