"""Complex numbers that go into real arrays, or the other way: pairs of real numbers."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks

PAIRS = [(np.dtype("c8"), np.dtype("f4")), (np.dtype("c16"), np.dtype("f8"))]


def numbers(rank, count, dtype):
    """Complex numbers of a rank."""
    return (np.arange(count) + 1j * (rank + 1)).astype(dtype)


def as_real(array):
    """A copy with a last dimension of two more."""
    return np.ascontiguousarray(array).view(array.real.dtype).reshape(*array.shape, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 7, 1025])
@pytest.mark.parametrize(("complex_", "real"), PAIRS, ids=str)
def test_complex_goes_into_real_and_back(complex_, real, count, size):
    every = [numbers(rank, count, complex_) for rank in range(size)]

    def body(rank):
        mine = every[rank]
        wide = np.zeros(2 * count, complex_)[::2]  # strided
        wide[:] = mine
        parts = [np.zeros((count, 2), real) for _ in range(size)]
        back = [np.zeros(count, complex_) for _ in range(size)]
        whole = np.zeros((size * count, 2), real)
        one = np.zeros((count, 2), real)
        turned = np.zeros((size * count, 2), real)
        dist.all_gather(parts, wide)
        dist.all_gather(back, as_real(mine))
        dist.all_gather_single(whole, mine, async_op=True).wait()
        dist.scatter(one, every if rank == 0 else None)
        dist.all_to_all_single(turned, np.concatenate([mine] * size))
        return parts, back, whole, one, turned

    for rank, found in enumerate(run_ranks(size, body)):
        parts, back, whole, one, turned = found
        together = as_real(np.concatenate(every))
        np.testing.assert_array_equal(parts, [as_real(array) for array in every])
        np.testing.assert_array_equal(back, every)
        np.testing.assert_array_equal(whole, together)
        np.testing.assert_array_equal(turned, together)
        np.testing.assert_array_equal(one, as_real(every[rank]))


def test_lists_may_mix_them():
    def body(rank):
        parts = [np.zeros((3, 2), "f4"), np.zeros(3, "c8")]
        dist.all_gather(parts, numbers(rank, 3, "c8"))
        return parts

    for first, second in run_ranks(2, body):
        np.testing.assert_array_equal(first, as_real(numbers(0, 3, "c8")))
        np.testing.assert_array_equal(second, numbers(1, 3, "c8"))


def test_what_does_not_fit_is_refused():
    def body(rank):
        with pytest.raises(ValueError, match="found complex64 and float64"):
            dist.all_gather([np.zeros((3, 2))] * 2, np.zeros(3, "c8"))
        with pytest.raises(ValueError, match="has 3 elements, expected 6"):
            dist.all_gather([np.zeros(3, "f4") for _ in range(2)], np.zeros(3, "c8"))
        with pytest.raises(ValueError, match="found float32 and complex64"):
            dist.reduce_scatter(np.zeros((3, 2), "f4"), [np.zeros(3, "c8")] * 2)
        dist.barrier()  # the group still works

    run_ranks(2, body)
