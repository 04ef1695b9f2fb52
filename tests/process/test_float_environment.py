"""Ranks that round otherwise or flush subnormals get the bits that all others get."""

import pathlib

import pytest

from harness import float_environment
from harness.ranks import Processes

TESTS = str(pathlib.Path(__file__).parents[1])
SOURCE = """
    sys.path.insert(0, {tests!r})
    from harness.arrays import BFLOAT16
    from harness.float_environment import observed, set_way

    Op = dist.ReduceOp

    def inputs():
        generator = np.random.default_rng(rank)
        for name in ("f2", BFLOAT16, "f4", "f8", "c8", "c16", "i4", "i8"):
            dtype = np.dtype(name)
            for count in (1, 33, 5001):
                values = generator.uniform(-1, 1, count)
                if dtype.kind == "i":
                    yield (values * 1e6).astype(dtype)
                else:  # the tiny ones give subnormals
                    least = dict(float16=-7, float64=-300, complex128=-300)
                    exponents = generator.integers(least.get(dtype.name, -40), 1, count)
                    yield (values * 10.0**exponents).astype(dtype)

    inputs = list(inputs())

    def results(async_op):
        for values in inputs:
            factor = 3 if values.dtype.kind == "i" else 0.3
            for op in (Op.SUM, Op.AVG, Op.PRODUCT, Op.PREMUL_SUM(factor)):
                array = values.copy()
                work = dist.all_reduce(array, op, async_op=async_op)
                if async_op:
                    work.wait()
                yield array.tobytes()

    usual = list(results(async_op=False))
    before = observed()
    if rank == size // 2:
        set_way({way!r})
        assert observed() != before
    now = observed()
    found = [list(results(async_op)) for async_op in (False, True)]
    assert observed() == now  # a call leaves the thread as it was
    assert found == [usual, usual]
    give(b"".join(usual))
"""


@pytest.mark.skipif(
    not float_environment.IS_KNOWN, reason="no way to set it on this machine"
)
@pytest.mark.parametrize("way", float_environment.WAYS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_rank_has_the_same_bits(size, way):
    with Processes(size, SOURCE.format(tests=TESTS, way=way)) as ranks:
        first, *others = ranks.join()
    assert all(other == first for other in others)
