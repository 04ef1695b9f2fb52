"""The result of a survey of many keys, for each key."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Found", "found_in"]


class Found(IntEnum):
    """What a survey finds at a key; numbers as in store/protocol.hpp."""

    NOTHING = 0
    EMPTY_VALUE = 1
    SOME_VALUE = 2


def found_in(value: bytes | None) -> Found:
    """Return what a survey finds at a key with this value; None if it has none."""
    if value is None:
        return Found.NOTHING
    return Found.SOME_VALUE if value else Found.EMPTY_VALUE
