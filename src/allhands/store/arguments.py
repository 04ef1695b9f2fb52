"""Keys, values and numbers as callers of a store give them: checked and made one type.

Every function here is on the way of every call, so the usual types are looked at first.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence

__all__ = [
    "as_bytes",
    "as_count",
    "as_int64",
    "as_items",
    "as_key",
    "as_keys",
    "as_port",
    "wrapped",
]

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
# 19 digits are the most that an int64 has.
_INTEGER = re.compile(rb"[+-]?[0-9]{1,19}")


def as_bytes(value: str | bytes) -> bytes:
    """A value as the stores keep it; str in UTF-8."""
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a store's value must be str or bytes, got {value!r}")


def as_key(key: str) -> str:
    """A key, checked."""
    if type(key) is not str and not isinstance(key, str):
        raise TypeError(f"a store's key must be str, got {key!r}")
    return key


def as_keys(keys: Iterable[str]) -> list[str]:
    """A list of keys; a lone str, easily given by mistake, is refused."""
    if type(keys) is not list:
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise TypeError(f"keys must be a list of str, got {keys!r}")
        return as_keys(list(keys))
    for key in keys:
        if type(key) is not str:
            as_key(key)
    return list(keys)


def as_items(
    keys: Sequence[str], values: Sequence[str | bytes]
) -> list[tuple[str, bytes]]:
    """The arguments of `multi_set`, paired."""
    keys = as_keys(keys)
    if len(keys) != len(values):
        raise ValueError(f"multi_set: {len(keys)} keys but {len(values)} values")
    return [(key, as_bytes(value)) for key, value in zip(keys, values, strict=True)]


def as_int64(amount: int) -> int:
    """What `add` adds, checked."""
    number = amount if type(amount) is int else operator.index(amount)
    if not INT64_MIN <= number <= INT64_MAX:
        raise TypeError(f"add: amount must be an int64, got {amount}")
    return number


def as_port(port: int) -> int:
    """Where a server listens, checked; 0 lets it choose."""
    if not hasattr(port, "__index__"):
        raise TypeError(f"port must be an int, got {port!r}")
    if not 0 <= port <= 65535:
        raise ValueError(f"port must have value from 0 to 65535 but was {port}.")
    return port


def as_count(key: str, value: bytes) -> int:
    """The value of `key` as the counter that `add` adds to."""
    if len(value) < 19 and value.isdigit():  # the usual one, which is in range
        return int(value)
    if _INTEGER.fullmatch(value):
        count = int(value)
        if INT64_MIN <= count <= INT64_MAX:
            return count
    raise ValueError(f"add: the value of key {key!r} is not an int64: {value[:40]!r}")


def wrapped(number: int) -> int:
    """`number` as an int64 that has run over keeps it."""
    if INT64_MIN <= number <= INT64_MAX:
        return number
    return (number - INT64_MIN) % (1 << 64) + INT64_MIN
