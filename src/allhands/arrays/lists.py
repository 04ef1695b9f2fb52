"""Lists of arrays as callers pass them: are they right?

No state, no communication.
"""

from __future__ import annotations

__all__ = ["check_list"]


def check_list(name: str, value: object) -> None:
    """Refuse an argument that is not a list.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, list):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type list of "
            f"arrays, but got {type(value)} instead."
        )
