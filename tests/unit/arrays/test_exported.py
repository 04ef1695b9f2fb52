"""Objects with the buffer protocol as arrays: what they are taken for, and refusals."""

import array
import ctypes
import itertools
import mmap
import random
import sys

import numpy as np
import pytest

import allhands as dist
from allhands.arrays import as_buffer, device_of
from harness.ranks import run_ranks

WRITABLE = {
    "bytearray": bytearray,
    "memoryview": lambda data: memoryview(bytearray(data)),
    "array": lambda data: array.array("B", data),
    "ctypes": lambda data: (ctypes.c_char * len(data)).from_buffer_copy(data),
}


def mapped(data):
    """`data` in a memory map, which may not be empty."""
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("make", [*WRITABLE.values(), mapped], ids=[*WRITABLE, "mmap"])
@pytest.mark.parametrize("count", [1, 33, 4097])
def test_every_kind_goes_through_collectives_and_messages(make, count, size):
    data = [random.Random(rank).randbytes(count) for rank in range(size)]

    def body(rank):
        mine = make(data[rank])
        gathered = make(bytes(count * size))
        dist.all_gather_single(gathered, data[rank])
        parts = [make(bytes(count)) for _ in range(size)]
        dist.all_gather(parts, mine)
        taken = make(data[rank - 1])
        if size > 1:
            taken = make(bytes(count))
            dist.sendrecv(data[rank], taken, (rank + 1) % size, (rank - 1) % size)
        spread = make(b"\0" * count)
        dist.scatter(spread, data if rank == 0 else None)
        turned = make(bytes(count * size))
        dist.all_to_all_single(turned, make(data[rank] * size))
        dist.all_reduce(mine, dist.ReduceOp.BXOR, async_op=True).wait()
        return [
            bytes(memoryview(x)) for x in (gathered, taken, spread, turned, mine)
        ] + [[bytes(memoryview(part)) for part in parts]]

    whole = b"".join(data)
    xor = bytes(np.bitwise_xor.reduce([np.frombuffer(d, np.uint8) for d in data]))
    for rank, found in enumerate(run_ranks(size, body)):
        assert found == [whole, data[rank - 1], data[rank], whole, xor, data]


def test_an_empty_one_is_taken():
    assert as_buffer(bytearray(), writable=True).count == 0
    assert as_buffer(b"", writable=False).count == 0


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_the_format_tells_the_dtype(code):
    numbers = array.array(code, [1, 2, 3])
    buffer = as_buffer(numbers, writable=True)
    assert buffer.dtype.name.lower() == np.asarray(memoryview(numbers)).dtype.name
    assert (buffer.count, buffer.address) == (3, numbers.buffer_info()[0])

    def body(rank):
        mine = array.array(code, [1, 2, rank])
        dist.all_reduce(mine)
        return mine.tolist()

    assert run_ranks(3, body) == [[3, 6, 3]] * 3


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: (ctypes.c_bool * 2)(), "bool"),
        (lambda: (ctypes.c_float * 3 * 2)(), "float32"),
        (lambda: memoryview(np.zeros(2, "f2")), "float16"),
        (lambda: memoryview(np.zeros((2, 3), "c8").T), "complex64"),
        (lambda: memoryview(bytes(4)).cast("c"), "uint8"),
    ],
)
def test_other_formats_of_numbers(make, dtype):
    buffer = as_buffer(make(), writable=False)
    assert buffer.dtype.name.lower() == dtype
    assert buffer.count == memoryview(make()).nbytes // np.dtype(dtype).itemsize


def test_strided_memory_is_taken():
    def body(rank):
        memory = bytearray(range(9))
        dist.all_reduce(memoryview(memory)[::-2])
        return list(memory)

    assert run_ranks(2, body) == [[0, 1, 4, 3, 8, 5, 12, 7, 16]] * 2


@pytest.mark.parametrize(
    "thing", [b"xy", memoryview(b"xy"), memoryview(bytearray(b"xy")).toreadonly()]
)
def test_what_is_read_only_can_only_be_read(thing):
    def body(rank):
        with pytest.raises(
            ValueError, match=r"(bytes|memoryview) is read-only, but th"
        ):
            dist.all_reduce(thing)
        parts = [bytearray(2) for _ in range(2)]
        dist.all_gather(parts, thing)
        return parts

    assert run_ranks(2, body) == [[b"xy", b"xy"]] * 2


class Pair(ctypes.Structure):
    """Two numbers that are no number."""

    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_double))


CHARACTERS = "w" if sys.version_info >= (3, 13) else "u"


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        ((Pair * 2)(), "Pair_Array_2 of format 'T{"),
        ((ctypes.c_void_p * 2)(), "c_void_p_Array_2 of format '<P'"),
        ((ctypes.c_float.__ctype_be__ * 2)(), "of format '>f'"),
        (array.array(CHARACTERS, "ab"), r"array\.array of format '[uw]'"),
    ],
)
def test_formats_that_are_no_numbers_are_refused(thing, name):
    with pytest.raises(TypeError, match=rf"{name}.*cast\('B'\)"):
        as_buffer(thing, writable=True)
    assert as_buffer(memoryview(thing).cast("B"), writable=True).count > 0


def test_memory_stays_exported_while_an_operation_has_it():
    def body(rank):
        memory = bytearray(8)
        work = dist.all_reduce(memory, async_op=True)
        with pytest.raises(BufferError):
            memory.extend(b"more")
        request = dist.all_reduce_init(memory)
        work.wait()
        request()
        with pytest.raises(BufferError):
            memory.extend(b"more")

    run_ranks(1, body)


def test_what_is_exported_no_more_is_refused():
    memory = mmap.mmap(-1, 10)
    memory.close()
    view = memoryview(b"x")
    view.release()
    for thing in (memory, view):
        with pytest.raises(ValueError, match=r"closed|released"):
            as_buffer(thing, writable=False)


def test_the_device_is_the_cpu():
    assert device_of(bytearray(1)) == "cpu"


@pytest.mark.parametrize("size", [2, 3])
def test_a_number_of_bytes_that_differs_is_a_mismatch(size):
    def body(rank):
        with pytest.raises(dist.CollectiveMismatchError, match="count 8"):
            dist.all_reduce(bytearray(8 + (rank == 1)))
        total = bytearray(itertools.repeat(1, 3))
        dist.all_reduce(total)
        return total

    assert run_ranks(size, body) == [bytearray([size] * 3)] * size
