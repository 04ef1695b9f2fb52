"""Objects taken apart and put together, without ranks."""

import numpy as np
import pytest

import allhands as dist
from allhands.parcel import pack, room_for, unpack

MANY = 9_000_000  # bytes, for more than one piece


def carried(parcel):
    """What arrives of `parcel`."""
    [arrived] = room_for([parcel.numbers()])
    for source, target in zip(parcel.sections(), arrived.sections(), strict=True):
        target[:] = source
    return arrived


OBJECTS = {
    "none": None,
    "bytes": b"ab" * (MANY // 2),
    "two of them": [b"a" * MANY, {"b": b"b" * MANY}],
    "bytearray": bytearray(b"ab") * (MANY // 2),
    "str": "aé" * (MANY // 3),
    "numbers": [0.5 * n for n in range(MANY // 9)],
    "bytes between small ones": ["x" * 40_000, b"y" * MANY, "z" * 3],
}


@pytest.mark.parametrize("obj", OBJECTS.values(), ids=OBJECTS)
def test_comes_out_as_it_went_in(obj):
    arrived = carried(pack(obj))
    result = unpack(arrived)
    assert type(result) is type(obj)
    assert result == obj


def test_a_stream_is_cut_and_read_to_its_end():
    parcel = carried(pack([b"a" * MANY, "b" * MANY]))
    assert len(parcel.pieces) > 4
    assert max(piece.size for piece in parcel.pieces) < MANY / 2
    unpack(parcel)
    assert len(parcel.pieces) <= 1  # the last one, which is at hand


def test_large_buffers_are_neither_in_the_stream_nor_copied():
    array, data = np.arange(100_000), bytes(MANY)
    parcel = pack([array, data])
    assert np.shares_memory(parcel.buffers[0], array)
    assert any(np.shares_memory(p, np.frombuffer(data, "u1")) for p in parcel.pieces)
    arrived = carried(parcel)
    buffer = arrived.buffers[0]
    assert np.shares_memory(unpack(arrived)[0], buffer)


@pytest.mark.parametrize("sizes", [[1, 2**60], [1, 5, -1]])
def test_numbers_that_cannot_be_true_are_refused(sizes):
    with pytest.raises(dist.DistBackendError, match="bytes are announced, this host"):
        room_for([np.array(sizes)])
