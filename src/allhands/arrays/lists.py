"""Lists of arrays as callers pass them: are they right?

No state, no communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from allhands.arrays import Array, library_of

__all__ = ["check_list", "check_same_dtype"]


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


def check_same_dtype(tensors: Sequence[Array]) -> None:
    """Refuse arrays of more than one dtype, or what are no arrays.

    Raises:
        TypeError: one is no array.
        ValueError: they differ.
    """
    dtypes = [_dtype_of(tensor) for tensor in tensors]
    for dtype in dtypes:
        if dtype != dtypes[0]:
            raise ValueError(
                f"Invalid usage of tensors with different dtypes: found "
                f"{dtypes[0]} and {dtype}"
            )


def _dtype_of(tensor: Array) -> Any:
    library_of(tensor)
    is_typed = hasattr(tensor, "dtype")  # others only export their memory
    return tensor.dtype if is_typed else np.asarray(memoryview(tensor)).dtype
