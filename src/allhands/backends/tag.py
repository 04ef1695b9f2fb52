"""Checks tags of messages, and converts them to ints for the core."""

from __future__ import annotations

from operator import index

from allhands._C import ANY_TAG
from allhands.backends.frames import called_operation

__all__ = ["check_tag"]

_NUM_TAGS = 2**31


def check_tag(tag: int) -> int:
    """Return the tag as an int after checking it.

    Raises:
        TypeError: `tag` is not an int, or is too large.
        RuntimeError: `tag` is negative.
        ValueError: `tag` is `ANY_TAG`.
    """
    if type(tag) is not int and hasattr(tag, "__index__"):
        tag = index(tag)  # an integer of another library
    if not isinstance(tag, int) or tag >= _NUM_TAGS:
        raise TypeError(
            f"{called_operation()}: tag must be an int in [0, 2**31), got {tag!r}"
        )
    if tag < 0:
        if tag == ANY_TAG:
            raise ValueError(
                f"{called_operation()}: tag=ANY_TAG is for recv and irecv with "
                f"status=Status(), which tells the tag that came, and for probes"
            )
        raise RuntimeError(
            f"{called_operation()}: Tag must be nonnegative: it is in [0, 2**31), got "
            f"{tag}"
        )
    return tag
