"""Gather and scatter of arrays that differ in size from rank to rank.

`gather` and `scatter` are for arrays of one size, which every rank knows. Here only the
two ends of each transfer have to agree on its size. If they do not, every rank raises
`CollectiveMismatchError`. Both functions run as an `all_to_all` in which most arrays
are empty. Backends, hooks and records see this `all_to_all`, and all ranks wait for
each other. The conventions of `collectives` also apply here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, overload

import numpy as np

from allhands.arrays import Array, library_of
from allhands.arrays.lists import check_list
from allhands.backends.work import Work
from allhands.groups.arguments import Group, carrier_and_root, is_outside, resolve
from allhands.groups.process_group import ProcessGroup

__all__ = ["gatherv", "scatterv"]


@overload
def gatherv(
    tensor: Array,
    gather_list: list[Array] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: Literal[False] = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def gatherv(
    tensor: Array,
    gather_list: list[Array] | None = None,
    dst: int | None = None,
    group: Group = None,
    *,
    async_op: Literal[True],
    group_dst: int | None = None,
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def gatherv(
    tensor: Array,
    gather_list: list[Array] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def gatherv(
    tensor: Array,
    gather_list: list[Array] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Collect `tensor` of every rank, of any size, in `gather_list` of one rank.

    This is `gather` with different sizes: the array for rank i in the list has as many
    elements as the `tensor` of rank i. The arrays may be views of one array, as in
    MPI's `Gatherv`.

    Raises:
        ValueError: the list is missing on the destination or given on another rank;
            dtypes differ; `dst` is not in the group.
        TypeError: `gather_list` is not a list.
        RuntimeError: the list does not have one entry per rank; there is no such rank.
        CollectiveMismatchError: an array has different sizes on its two ranks.

    Example:
        ```python
        counts = [3, 1, 2]  # of ranks 0, 1 and 2
        whole = np.empty(sum(counts))
        views = np.split(whole, np.cumsum(counts)[:-1])  # no copies
        is_root = dist.get_rank() == 0
        dist.gatherv(mine, views if is_root else None, dst=0)
        ```
    """
    carrier, root = carrier_and_root(group, dst, group_dst, default=0)
    member = resolve(group)
    if is_outside(member, "gatherv"):
        return None
    outputs, inputs = _by_rank(
        "gatherv", "gather_list", gather_list, tensor, root, member
    )
    return carrier.all_to_all(outputs, inputs, timeout, async_op)


@overload
def scatterv(
    tensor: Array,
    scatter_list: list[Array] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: Literal[False] = False,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def scatterv(
    tensor: Array,
    scatter_list: list[Array] | None = None,
    src: int | None = None,
    group: Group = None,
    *,
    async_op: Literal[True],
    group_src: int | None = None,
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def scatterv(
    tensor: Array,
    scatter_list: list[Array] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def scatterv(
    tensor: Array,
    scatter_list: list[Array] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Give each rank its array of `scatter_list` of one rank, of any size, in `tensor`.

    This is `scatter` with different sizes: rank i passes a `tensor` with as many
    elements as its array in the list. The arrays may be views of one array, as in MPI's
    `Scatterv`.

    Raises:
        ValueError: the list is missing on the source or given on another rank; dtypes
            differ; `src` is not in the group.
        TypeError: `scatter_list` is not a list.
        RuntimeError: the list does not have one entry per rank; there is no such rank.
        CollectiveMismatchError: an array has different sizes on its two ranks.

    Example:
        ```python
        counts = [3, 1, 2]  # for ranks 0, 1 and 2
        mine = np.empty(counts[dist.get_rank()])
        views = np.split(whole, np.cumsum(counts)[:-1]) if is_root else None
        dist.scatterv(mine, views, src=0)
        ```
    """
    carrier, root = carrier_and_root(group, src, group_src, default=0)
    member = resolve(group)
    if is_outside(member, "scatterv"):
        return None
    inputs, outputs = _by_rank(
        "scatterv", "scatter_list", scatter_list, tensor, root, member
    )
    return carrier.all_to_all(outputs, inputs, timeout, async_op)


def _by_rank(
    op: str, name: str, arrays: Any, tensor: Array, root: int, member: ProcessGroup
) -> tuple[list[Array], list[Array]]:
    """Return two lists by rank: the arrays of the root's list, and their counterparts.

    Of the counterparts only the one for the root has elements. On other ranks than the
    root, the arrays of the first list are empty.
    """
    size = member.size()
    if not 0 <= root < size:
        raise RuntimeError(
            f"{op}: invalid root rank: {root}; it must be in [0, {size})"
        )
    nothing = _nothing_like(tensor)
    for_root = [nothing] * size
    for_root[root] = tensor
    if _has_list(op, name, arrays, member.rank() == root):
        return _checked(op, name, arrays, size), for_root
    return [nothing] * size, for_root


def _has_list(op: str, name: str, arrays: Any, is_root: bool) -> bool:
    """Return whether this rank passes the list; only the root does."""
    if is_root and arrays is None:
        raise ValueError(f"{op}: {name} is missing on the root rank")
    if not is_root and arrays is not None:
        check_list(name, arrays)
        if arrays:
            raise ValueError(f"{op}: {name} must be None on ranks other than the root")
    return is_root


def _checked(op: str, name: str, arrays: Any, size: int) -> list[Array]:
    check_list(name, arrays)
    if len(arrays) != size:
        raise RuntimeError(
            f"{op}: {name} has {len(arrays)} arrays, expected {size}, one per rank"
        )
    return list(arrays)


def _nothing_like(array: Array) -> Array:
    """Return an empty array of the same library and dtype."""
    library = library_of(array)
    if hasattr(array, "dtype"):
        return library.from_bytes(np.empty(0, np.uint8), (0,), array.dtype)
    numbers = np.asarray(memoryview(array))
    return np.empty(0, np.uint8 if numbers.dtype.kind == "S" else numbers.dtype)
