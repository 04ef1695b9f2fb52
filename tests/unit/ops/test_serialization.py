"""Objects taken apart and put together, without ranks."""

import numpy as np
import pytest

import allhands as dist
from allhands.ops.serialization import pack, room_for, unpack

MANY = 9_000_000  # bytes, for more than one piece


def carried(serialized):
    """What arrives of `serialized`."""
    [arrived] = room_for([serialized.numbers()])
    for source, target in zip(serialized.sections(), arrived.sections(), strict=True):
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
    serialized = carried(pack([b"a" * MANY, "b" * MANY]))
    assert len(serialized.pieces) > 4
    assert max(piece.size for piece in serialized.pieces) < MANY / 2
    unpack(serialized)
    assert len(serialized.pieces) <= 1  # the last one, which is at hand


def test_large_buffers_are_neither_in_the_stream_nor_copied():
    array, data = np.arange(100_000), bytes(MANY)
    serialized = pack([array, data])
    assert np.shares_memory(serialized.buffers[0], array)
    assert any(
        np.shares_memory(p, np.frombuffer(data, "u1")) for p in serialized.pieces
    )
    arrived = carried(serialized)
    buffer = arrived.buffers[0]
    assert np.shares_memory(unpack(arrived)[0], buffer)


@pytest.mark.parametrize("sizes", [[1, 2**60], [1, 5, -1]])
def test_numbers_that_cannot_be_true_are_refused(sizes):
    with pytest.raises(dist.DistBackendError, match="bytes are announced, this host"):
        room_for([np.array(sizes)])
