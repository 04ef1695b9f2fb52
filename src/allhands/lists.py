"""Lists of arrays, and arrays to be split, as callers pass them: are they right?

No state, no communication.
"""

from __future__ import annotations

from collections.abc import Sequence

from allhands.arrays import Array, library_of

__all__ = ["check_list", "check_same_dtype", "split_sizes"]


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


def split_sizes(
    name: str, array: Array, sizes: Sequence[int] | None, num_ranks: int
) -> list[int]:
    """How many rows of `array` go to or come from each rank; even where not given.

    Raises:
        RuntimeError: they are not one per rank, or do not make up all rows; or none are
            given and the rows cannot be shared evenly.
    """
    if not array.shape:
        raise RuntimeError(f"{name} has no dimensions, so it cannot be split in rows")
    rows = int(array.shape[0])
    if sizes is None or not len(sizes):
        if rows % num_ranks:
            raise RuntimeError(
                f"{name}: dim 0 of size {rows} does not divide equally across "
                f"{num_ranks} ranks; pass {name}_split_sizes"
            )
        return [rows // num_ranks] * num_ranks
    splits = [int(size) for size in sizes]
    if len(splits) != num_ranks:
        raise RuntimeError(
            f"{name}: number of tensor splits not equal to group size: expected "
            f"{num_ranks}, got {len(splits)}"
        )
    if sum(splits) != rows or min(splits) < 0:
        raise RuntimeError(
            f"{name}: split sizes doesn't match total dim 0 size: {splits} for {rows} "
            f"rows"
        )
    return splits
