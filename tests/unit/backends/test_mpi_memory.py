"""How arrays are given to mpi4py; a stand-in for MPI notes what it is told."""

from types import SimpleNamespace

import numpy as np
import pytest

from allhands._C import Buffer, DType
from allhands.backends.mpi.memory import any_message, message

TYPES = {
    **{"?": "C_BOOL", "i1": "INT8_T", "i2": "INT16_T", "i4": "INT32_T"},
    **{"i8": "INT64_T", "u1": "UINT8_T", "u2": "UINT16_T", "u4": "UINT32_T"},
    **{"u8": "UINT64_T", "f2": "UINT16_T", "f4": "FLOAT", "f8": "DOUBLE"},
    **{"c8": "C_FLOAT_COMPLEX", "c16": "C_DOUBLE_COMPLEX"},
}
mpi = SimpleNamespace(
    buffer=SimpleNamespace(fromaddress=lambda address, num_bytes: (address, num_bytes)),
    BYTE="byte",
    **{name: f"its {name}" for name in TYPES.values()},
)


@pytest.mark.parametrize(("dtype", "name"), TYPES.items())
def test_an_array_is_its_memory_its_count_and_mpis_type(dtype, name):
    array = np.zeros(3, dtype)
    memory = array.ctypes.data, array.nbytes
    buffer = Buffer.from_numpy(array, True)
    assert message(mpi, buffer) == [memory, 3, f"its {name}"]
    assert any_message(mpi, buffer) == [memory, array.nbytes, "byte"]


def test_bfloat16_is_moved_as_integers():
    buffer = Buffer(4096, DType.BFloat16, (5,), None, None)
    assert message(mpi, buffer) == [(4096, 10), 5, "its UINT16_T"]
