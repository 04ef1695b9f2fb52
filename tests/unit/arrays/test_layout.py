"""may_overlap is exact for what slicing, transposing and broadcasting make."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.arrays._layout import may_overlap


def overlaps(array):
    return may_overlap(array.shape, array.strides, array.itemsize)


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    steps=st.lists(st.sampled_from([1, 2, -1, -3]), min_size=4, max_size=4),
    order=st.permutations(range(4)),
)
def test_slices_and_transposes_do_not_overlap(shape, steps, order):
    array = np.zeros(shape)[
        tuple(slice(None, None, step) for step in steps[: len(shape)])
    ]
    array = array.transpose([axis for axis in order if axis < array.ndim])
    assert not overlaps(array)


@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 1), (2, 1, 4)])
def test_broadcast_dimensions_overlap(shape):
    small = np.zeros([1 if axis == 0 else n for axis, n in enumerate(shape)])
    assert overlaps(np.broadcast_to(small, shape))


def test_a_broadcast_dimension_of_one_does_not():
    assert not overlaps(np.broadcast_to(np.zeros((1, 3)), (1, 3)))


def test_sliding_windows_overlap():
    assert overlaps(np.lib.stride_tricks.sliding_window_view(np.zeros(5), 3))
