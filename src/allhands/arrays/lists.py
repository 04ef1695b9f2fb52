"""Lists of arrays as callers pass them: are they right?

No state, no communication.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    for tensor in tensors:
        library_of(tensor)
        if tensor.dtype != tensors[0].dtype:
            raise ValueError(
                f"Invalid usage of tensors with different dtypes: found "
                f"{tensors[0].dtype} and {tensor.dtype}"
            )
