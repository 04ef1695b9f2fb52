"""Which arrays MPI is handed as they are."""

from types import SimpleNamespace

import numpy as np
import pytest

import allhands as dist
from allhands.backends.mpi.plain import PlainReductions

NAMES = ("INT32_T", "INT64_T", "UINT32_T", "UINT64_T", "FLOAT", "DOUBLE")
MPI = SimpleNamespace(
    IN_PLACE="in place",
    **{name: name for name in ("SUM", "PROD", "MIN", "MAX", *NAMES)},
)


def arguments(array, op=dist.ReduceOp.SUM):
    return PlainReductions(MPI).arguments(array, op)


@pytest.mark.parametrize(
    ("dtype", "element"),
    [*zip(("i4", "i8", "u4", "u8", "f4", "f8"), NAMES, strict=True)],
)
def test_plain_arrays(dtype, element):
    for shape in ((), (0,), (3,), (2, 3)):
        array = np.ones(shape, dtype)
        where, [memory, its_type], op = arguments(array, dist.ReduceOp.PRODUCT)
        assert memory is array
        assert (where, its_type, op) == ("in place", element, "PROD")


def read_only():
    array = np.ones(3)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.ones(6)[::2],
        np.ones((2, 3)).T,
        np.ones(6)[:3],  # its memory may have been made smaller
        np.asfortranarray(np.ones((2, 3))),
        read_only(),
        np.ones(3, "f2"),
        np.ones(3, "i1"),
        np.ones(3, "c16"),
        np.ones(3, "?"),
        np.ones(3, ">f8"),
        np.ma.ones(3),
        [1.0, 2.0],
        bytearray(8),
        None,
    ],
)
def test_arrays_that_are_not(array):
    assert arguments(array) is None


@pytest.mark.parametrize(
    "op",
    [
        dist.ReduceOp.AVG,
        dist.ReduceOp.BAND,
        dist.ReduceOp.PREMUL_SUM(2.0),
        "SUM",
        0,
        [],
        None,
    ],
)
def test_operations_that_are_not(op):
    assert arguments(np.ones(3), op) is None
