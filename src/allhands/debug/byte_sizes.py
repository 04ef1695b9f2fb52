"""Numbers of bytes as people write them."""

from __future__ import annotations

__all__ = ["parse_size", "readable_size"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Return the number of bytes that `8`, `16K`, `1M` or `1G` (also `1MiB`) means.

    Raises:
        ValueError: the text is none of these.
    """
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = number[-1:] if number[-1:] in ("K", "M", "G") else ""
    digits = number.removesuffix(unit)
    if not digits.isdecimal() or int(digits) < 1:
        raise ValueError(f"size is {text!r}; want bytes such as 8, 16K, 1M or 1G")
    return int(digits) * _UNITS[unit]


def readable_size(num_bytes: int) -> str:
    """Return `num_bytes` in the largest unit that divides it."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes >= size and num_bytes % size == 0:
            return f"{num_bytes // size} {unit}"
    return f"{num_bytes} B"
