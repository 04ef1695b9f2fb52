"""Checks and converts the keys, values and numbers that callers of a store pass.

Every call of a store runs these functions, so they test for the usual types first.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence

from allhands.errors import ArgumentError

__all__ = [
    "as_bytes",
    "as_count",
    "as_int64",
    "as_items",
    "as_key",
    "as_keys",
    "as_port",
    "as_world_size",
    "wrapped",
]

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
# An int64 has at most 19 digits, and may have leading zeros.
_INTEGER = re.compile(rb"[ \t\n\v\f\r]*[+-]?[0-9]{1,40}[ \t\n\v\f\r]*")


def as_bytes(value: str | bytes) -> bytes:
    """Return a value as the stores keep it: a str becomes UTF-8."""
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a store's value must be str or bytes, got {value!r}")


def as_key(key: str) -> str:
    """Return `key` after checking that it is text that can be sent.

    Raises:
        TypeError: it is no str.
        UnicodeEncodeError: it has lone surrogates, which UTF-8 cannot express.
    """
    if type(key) is not str and not isinstance(key, str):
        raise TypeError(f"a store's key must be str, got {key!r}")
    if not key.isascii():
        key.encode()
    return key


def as_keys(keys: Iterable[str]) -> list[str]:
    """Return a list of keys; refuse a lone str, which is an easy mistake."""
    if type(keys) is not list:
        if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
            raise TypeError(f"a store's keys must be a list of str, got {keys!r}")
        return as_keys(list(keys))
    for key in keys:
        if type(key) is not str or not key.isascii():
            as_key(key)
    return list(keys)


def as_items(
    keys: Sequence[str], values: Sequence[str | bytes]
) -> list[tuple[str, bytes]]:
    """Return the arguments of `multi_set` as pairs."""
    keys = as_keys(keys)
    if len(keys) != len(values):
        raise ArgumentError(f"multi_set: {len(keys)} keys but {len(values)} values")
    return [(key, as_bytes(value)) for key, value in zip(keys, values, strict=True)]


def as_int64(amount: int) -> int:
    """Return the amount of an `add` after checking it."""
    try:
        number = amount if type(amount) is int else operator.index(amount)
    except TypeError:
        raise TypeError(f"add: amount must be an int64, got {amount!r}") from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise TypeError(f"add: amount must be an int64, got {amount}")
    return number


def as_port(port: int) -> int:
    """Return the port of a server after checking it; 0 lets the server choose."""
    if not hasattr(port, "__index__"):
        raise TypeError(f"port must be an int, got {port!r}")
    if not 0 <= port <= 65535:
        raise ValueError(f"port must have value from 0 to 65535 but was {port}.")
    return port


def as_world_size(world_size: int) -> int:
    """Return how many callers a `barrier` has, after checking it."""
    if not hasattr(world_size, "__index__"):
        raise TypeError(f"barrier: world_size must be an int, got {world_size!r}")
    number = operator.index(world_size)
    if number < 1:
        raise ValueError(f"barrier: world_size must be positive, got {number}")
    return number


def as_count(key: str, value: bytes) -> int:
    """Return the value of `key` as a number, for `add`; an empty value is 0."""
    if not value:
        return 0
    if len(value) < 19 and value.isdigit():  # the usual case, always in range
        return int(value)
    if _INTEGER.fullmatch(value):
        count = int(value)
        if INT64_MIN <= count <= INT64_MAX:
            return count
    raise ValueError(f"add: the value of key {key!r} is not an int64: {value[:40]!r}")


def wrapped(number: int) -> int:
    """Return `number` as an int64 that has wrapped around."""
    if INT64_MIN <= number <= INT64_MAX:
        return number
    return (number - INT64_MIN) % (1 << 64) + INT64_MIN
