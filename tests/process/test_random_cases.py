"""Every collective on random cases, with ranks as processes; see tests/property."""

import pathlib
import random

import pytest

from harness.cases import OPERATIONS
from harness.ranks import Processes

TESTS = pathlib.Path(__file__).parents[1]
CASES = 40  # for each operation

PROGRAM = """
    sys.path.insert(0, {tests!r})
    from harness.cases import OPERATIONS, draw

    for name, operation in OPERATIONS.items():
        for case in draw(name, size, {seed}, {cases}):
            try:
                operation(rank, case)
            except Exception as error:
                raise AssertionError(f"{{name}}, {{case}}") from error
    give(len(OPERATIONS))
"""


@pytest.mark.parametrize("size", [2, 3])
def test_random_cases(size):
    seed = random.randrange(2**32)
    print(f"{CASES} cases of seed {seed} for each operation")
    program = PROGRAM.format(tests=str(TESTS), seed=seed, cases=CASES)
    with Processes(size, program) as processes:
        assert processes.join() == [len(OPERATIONS)] * size
