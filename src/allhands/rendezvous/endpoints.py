"""Where a process listens, as text: "10.0.0.3:4471", several with commas between."""

from __future__ import annotations

import re

__all__ = ["are_endpoints"]

# Of a rank with a handful of interfaces; each of thousands of ranks says this much.
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


def are_endpoints(text: str) -> bool:
    """Whether this can be where a process listens; it may be nowhere."""
    return len(text) <= _LONGEST and _TEXT.fullmatch(text) is not None
