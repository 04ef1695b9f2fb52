"""The result of a survey of many keys, for each key."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Found"]


class Found(IntEnum):
    """What a survey finds at a key; numbers as in store/protocol.hpp."""

    NOTHING = 0
    EMPTY_VALUE = 1
    SOME_VALUE = 2
