"""The places where a process listens, as text: "10.0.0.3:4471", separated by commas."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["are_endpoints", "num_that_fit"]

# Room for a handful of interfaces; each of thousands of ranks has such a text.
_LONGEST = 512
_HOST = (
    r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
    r"|\[[0-9A-Fa-f:.]{2,45}(?:%[0-9A-Za-z._-]{1,15})?\])"
)
_PORT = (
    r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]"
    r"|6553[0-5])"
)
_PLACE = f"{_HOST}:{_PORT}"
_TEXT = re.compile(f"(?:{_PLACE}(?:,{_PLACE})*)?")


def num_that_fit(hosts: Iterable[str]) -> int:
    """Return how many of `hosts`, from the first on, fit into such a text."""
    count, length = 0, -1  # no comma before the first
    for host in hosts:
        length += len(",[]:65535" if ":" in host else ",:65535") + len(host)
        if length > _LONGEST:
            break
        count += 1
    return count


def are_endpoints(text: str) -> bool:
    """Return whether `text` is a valid list of places, which may be empty."""
    return len(text) <= _LONGEST and _TEXT.fullmatch(text) is not None
