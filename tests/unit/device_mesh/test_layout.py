"""Where the dimensions of a mesh run, against NumPy's reshape."""

import math

import numpy as np
import pytest

from allhands.device_mesh.layout import (
    Run,
    axes_of,
    cut,
    is_ascending,
    joined,
    overlap,
    places,
    position,
    size_of,
)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 4, 1), (2, 3, 4)])
def test_axes_are_those_of_the_shape(shape):
    layouts = axes_of(shape)
    number = math.prod(shape)
    assert places(layouts).tolist() == np.arange(number).reshape(shape).tolist()
    for place, index in enumerate(np.ndindex(shape)):
        assert tuple(position(layout, place) for layout in layouts) == index
    assert is_ascending(layouts)
    assert not overlap(layouts)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ((0, 1, 2), [(24, 1)]),
        ((0, 1), [(6, 4)]),
        ((0, 2), [(2, 12), (4, 1)]),
        ((1,), [(3, 4)]),
    ],
)
def test_neighbours_are_joined_to_one_run(axes, expected):
    all_of_them = axes_of((2, 3, 4))
    layout = joined(all_of_them[axis] for axis in axes)
    assert list(layout) == expected
    together = places([all_of_them[axis] for axis in axes])
    assert places([layout]).tolist() == together.ravel().tolist()
    assert size_of(layout) == together.size
    for index, place in enumerate(places([layout]).tolist()):
        assert position(layout, place) == index


def test_axes_of_one_are_left_out_where_there_are_others():
    one, two = axes_of((1, 2))
    assert joined([one, two]) == joined([two, one]) == two
    assert joined([one]) == one


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        ([(8, 1)], (2, 4)),
        ([(8, 1)], (1, 8)),
        ([(8, 1)], (8, 1)),
        ([(8, 3)], (2, 2, 2)),
        ([(2, 12), (4, 1)], (2, 4)),
        ([(2, 12), (4, 1)], (4, 2)),
        ([(2, 12), (4, 1)], (8,)),
        ([(2, 12), (4, 1)], (1, 8, 1)),
        ([(6, 1)], (3, 2)),
    ],
)
def test_parts_run_over_the_whole(layout, sizes):
    whole = tuple(Run(*run) for run in layout)
    parts = cut(whole, sizes)
    assert [size_of(part) for part in parts] == list(sizes)
    assert places(parts).ravel().tolist() == places([whole]).tolist()
    assert joined(parts) == whole
    assert not overlap(parts)


def test_a_part_cannot_end_where_a_run_is_not_divided():
    assert cut((Run(2, 12), Run(3, 1)), (3, 2)) is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((2, 4), (4, 1), False),
        ((2, 4), (2, 1), False),
        ((4, 1), (4, 1), True),
        ((2, 3), (3, 2), True),
        ((4, 2), (4, 1), True),
        ((1, 1), (4, 1), False),
    ],
)
def test_what_overlaps(one, other, expected):
    layouts = [(Run(*one),), (Run(*other),)]
    assert overlap(layouts) is overlap(layouts[::-1]) is expected
