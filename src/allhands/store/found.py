"""What a survey of many keys finds at each of them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Found"]


class Found(IntEnum):
    """What is at a key; the server's numbers, see csrc/allhands/store/protocol.hpp."""

    NOTHING = 0
    EMPTY_VALUE = 1
    SOME_VALUE = 2
