"""The records of a FileStore's file: what they are made of, and what is damaged."""

import struct
import zlib

import pytest

from allhands._C import decode_store_record, encode_store_record, store_record_size

HEAD = struct.Struct("<IBIQ")  # CRC-32 of all the rest, kind, bytes of key and value


@pytest.mark.parametrize("size", [*range(70), 1000, 65_537, 3_000_001])
def test_a_record_has_the_crc_of_zlib_and_comes_back(size):
    value = (bytes(range(251)) * (size // 251 + 1))[:size]
    data = encode_store_record(4, "kéy", value)
    crc, kind, key_size, value_size = HEAD.unpack_from(data)
    assert (kind, key_size, value_size) == (4, 4, size)
    assert crc == zlib.crc32(data[4:])
    assert data[HEAD.size :] == "kéy".encode() + value
    behind = b"other" + data + b"more"
    assert store_record_size(behind, 5) == len(data)
    assert decode_store_record(behind, 5, len(data)) == (4, "kéy", value)


def test_a_record_that_is_cut_has_the_size_of_its_head():
    data = encode_store_record(1, "k", b"v")
    for size in range(HEAD.size):
        assert store_record_size(data[:size], 0) == HEAD.size
        assert decode_store_record(data, 0, size) is None
    assert decode_store_record(data, 0, len(data) - 1) is None


def test_every_bit_that_is_wrong_is_noticed():
    data = encode_store_record(1, "key", b"value")
    for place in range(8 * len(data)):
        wrong = bytearray(data)
        wrong[place // 8] ^= 1 << place % 8
        assert decode_store_record(bytes(wrong), 0, len(wrong)) is None


@pytest.mark.parametrize(
    "sizes", [(65_537, 0), (0, (1 << 30) + 1), (2**32 - 1, 2**64 - 1)]
)
def test_a_size_over_the_limits_is_none(sizes):
    assert store_record_size(HEAD.pack(0, 1, *sizes), 0) is None
    assert decode_store_record(HEAD.pack(0, 1, *sizes), 0, HEAD.size) is None


def test_a_key_that_is_no_text_is_damage():
    rest = struct.pack("<BIQ", 1, 1, 0) + b"\xff"
    data = struct.pack("<I", zlib.crc32(rest)) + rest
    assert decode_store_record(data, 0, len(data)) is None


def test_a_key_that_is_too_long_is_refused():
    message = "a key of 65537 bytes with a value of 1: at most 65536 and 1073741824"
    with pytest.raises(ValueError, match=message):
        encode_store_record(1, "k" * 65_537, b"v")
