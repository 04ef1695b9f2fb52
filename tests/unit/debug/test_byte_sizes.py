"""Numbers of bytes as people write them."""

import pytest

from allhands.debug.byte_sizes import parse_size, readable_size


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("8", 8), ("16K", 16384), ("16k", 16384), ("1MiB", 1 << 20), ("2GB", 2 << 30)],
)
def test_sizes_are_read(text, num_bytes):
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "K", "0", "-8", "1.5M", "8T", "many"])
def test_what_is_no_size_is_said(text):
    with pytest.raises(ValueError, match=f"size is '{text}'; want bytes such as 8"):
        parse_size(text)


@pytest.mark.parametrize("text", ["8 B", "1000 B", "16 KiB", "64 MiB", "1 GiB"])
def test_sizes_are_shown_in_the_largest_unit_that_divides_them(text):
    assert readable_size(parse_size(text.replace(" ", ""))) == text
