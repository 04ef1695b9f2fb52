"""Which arrays MPI gets as they are, and how; functions of ours stand for MPI's."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

import allhands as dist
from allhands import _C, arrays
from allhands.backends.mpi.plain import plain_all_reduce
from allhands.options import RedOpType

IN_PLACE = (1 << 64) - 1
COMM = 0x84000002
TYPES = {dtype: 100 + i for i, dtype in enumerate(("i4", "i8", "u4", "u8", "f4", "f8"))}
OPS = {RedOpType.SUM: 7, RedOpType.PRODUCT: 8, RedOpType.MAX: 9}
NUMBER, PLACE = ctypes.c_size_t, ctypes.c_void_p
SUM = dist.ReduceOp.SUM


class Library:
    """Notes what it is called with; `ends` says whether a test finds the end."""

    def __init__(self, request_bytes=4, error=0, ends=True):
        self.calls, self.num_tests = [], 0
        self.error, self.ends, self.test_error = error, ends, 0
        number = {4: ctypes.c_uint32, 8: ctypes.c_uint64}[request_bytes]
        begin = ctypes.CFUNCTYPE(
            ctypes.c_int, PLACE, PLACE, ctypes.c_int, NUMBER, NUMBER, NUMBER, PLACE
        )
        test = ctypes.CFUNCTYPE(ctypes.c_int, PLACE, PLACE, PLACE)

        def iallreduce(*given):
            self.calls.append(given[:-1])
            number.from_address(given[-1]).value = 0x98000001
            return self.error

        def tested(request, is_over, status):
            self.num_tests += 1
            assert number.from_address(request).value == 0x98000001
            ctypes.c_int.from_address(is_over).value = self.ends
            return self.test_error

        self.functions = begin(iallreduce), test(tested)
        names = [dtype.name for dtype in map(np.dtype, TYPES)]
        dtypes = [_C.DType[name.capitalize().replace("Ui", "UI")] for name in names]
        self.all_reduce = _C.MpiAllReduce(
            *(ctypes.cast(function, PLACE).value for function in self.functions),
            *(IN_PLACE, COMM, request_bytes),
            [(d.value, t) for d, t in zip(dtypes, TYPES.values(), strict=True)],
            [(op.value, number) for op, number in OPS.items()],
            ArithmeticError,
        )


@pytest.mark.parametrize("dtype", TYPES)
def test_usual_arrays(dtype):
    library = Library()
    for array in (np.ones((), dtype), np.ones((2, 3), dtype), np.ones(6, dtype)[:3]):
        assert library.all_reduce(array, dist.ReduceOp.PRODUCT) is None
        [call] = library.calls
        place = IN_PLACE, array.ctypes.data, array.size
        assert call == (*place, TYPES[dtype], OPS[RedOpType.PRODUCT], COMM)
        library.calls.clear()


def test_usual_tensors():
    torch = pytest.importorskip("torch")
    arrays.load()
    library = Library()
    for tensor in (torch.ones(6)[2:], torch.ones(2, 3).T.contiguous()):
        assert library.all_reduce(tensor, SUM) is None
        [call] = library.calls
        assert call[1:3] == (tensor.data_ptr(), tensor.numel())
        library.calls.clear()
    for tensor in (torch.ones(6)[::2], torch.ones(3, dtype=torch.bfloat16)):
        assert library.all_reduce(tensor, SUM) is NotImplemented


def read_only():
    array = np.ones(3)
    array.flags.writeable = False
    return array


def outgrown():
    whole = np.ones(6)
    part = whole[3:]
    whole.resize(4, refcheck=False)
    return part


@pytest.mark.parametrize(
    "array",
    [
        np.ones(0),
        np.ones(6)[::2],
        np.ones((2, 3)).T,
        np.asfortranarray(np.ones((2, 3))),
        read_only(),
        outgrown(),
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
def test_other_arrays_are_left_alone(array):
    library = Library()
    assert library.all_reduce(array, SUM) is NotImplemented
    assert library.calls == []


@pytest.mark.parametrize(
    "op",
    [
        dist.ReduceOp.AVG,
        dist.ReduceOp.MIN,  # which the library of this test does not have
        dist.ReduceOp.BAND,
        dist.ReduceOp.PREMUL_SUM(2.0),
        "SUM",
        0,
        [],
        None,
    ],
)
def test_other_operations_are_left_alone(op):
    library = Library()
    assert library.all_reduce(np.ones(3), op) is NotImplemented
    assert library.calls == []


@pytest.mark.parametrize("request_bytes", [4, 8])
def test_what_does_not_end_in_a_moment_goes_on_as_a_request(request_bytes):
    library = Library(request_bytes, ends=False)
    assert library.all_reduce(np.ones(3), SUM) == 0x98000001
    assert library.num_tests > 1


def test_errors_are_those_of_the_library():
    library = Library(error=13)
    with pytest.raises(ArithmeticError, match=r"^13$"):
        library.all_reduce(np.ones(3), SUM)
    assert library.num_tests == 0
    library.error, library.test_error, library.ends = 0, 14, False
    with pytest.raises(ArithmeticError, match=r"^14$"):
        library.all_reduce(np.ones(3), SUM)
    assert library.num_tests == 1


@pytest.mark.parametrize("file", ["no such file", _C.__file__])
def test_where_the_functions_are_not_found_nothing_begins(file):
    all_reduce = plain_all_reduce(SimpleNamespace(__file__=file), None)
    assert all_reduce(np.ones(3), SUM) is NotImplemented
