"""Where a process listens, as text: "10.0.0.3:4471", several with commas between."""

from __future__ import annotations

import re

__all__ = ["are_endpoints"]

# Of a rank with a handful of interfaces; each of thousands of ranks says this much.
_LONGEST = 1024
_PLACE = re.compile(
    r"(?:[0-9A-Za-z][0-9A-Za-z._-]*"  # an IPv4 address or a name
    r"|\[[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._-]+)?\])"  # an IPv6 address
    r":([0-9]{1,5})",
    re.ASCII,
)


def are_endpoints(text: str) -> bool:
    """Whether this can be where a process listens; it may be nowhere."""
    if not text:
        return True
    if len(text) > _LONGEST:
        return False
    places = [_PLACE.fullmatch(place) for place in text.split(",")]
    return all(place and 0 < int(place[1]) < 1 << 16 for place in places)
