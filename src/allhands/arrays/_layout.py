"""Facts about strided layouts that hold for the arrays of every library."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["may_overlap"]


def may_overlap(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether two elements of an array may share memory; `strides` are in bytes.

    Exact for every layout that slicing, transposing and expanding make. A hand-made
    layout whose dimensions interleave counts as overlapping.
    """
    if 0 in shape:
        return False
    extent = itemsize  # bytes spanned by the dimensions seen so far
    for stride, size in sorted(
        (abs(stride), size)
        for size, stride in zip(shape, strides, strict=True)
        if size > 1
    ):
        if stride < extent:
            return True
        extent += (size - 1) * stride
    return False
