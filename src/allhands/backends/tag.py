"""Tags of messages, checked: what a program gives as one reaches the core as an int."""

from __future__ import annotations

from operator import index

from allhands._C import ANY_TAG

__all__ = ["check_tag"]

_NUM_TAGS = 2**31


def check_tag(tag: int) -> int:
    """The tag, if it is one.

    Raises:
        TypeError: it is no int, or too large.
        RuntimeError: it is negative.
        ValueError: any tag is meant.
    """
    if type(tag) is not int and hasattr(tag, "__index__"):
        tag = index(tag)  # of another library
    if not isinstance(tag, int) or tag >= _NUM_TAGS:
        raise TypeError(f"tag must be an int in [0, 2**31), got {tag!r}")
    if tag < 0:
        if tag == ANY_TAG:
            raise ValueError(
                "tag=ANY_TAG is for recv and irecv with status=Status(), which tells "
                "the tag that came, and for probes"
            )
        raise RuntimeError(f"Tag must be nonnegative: it is in [0, 2**31), got {tag}")
    return tag
