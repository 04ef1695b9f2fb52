"""The collectives that collect an array of every rank: each resolves and delegates.

The conventions of the module `collectives` also apply here.
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Literal, overload

from allhands.arrays import Array
from allhands.backends.work import Work
from allhands.groups.arguments import Group, carrier_and_root, carrier_of

__all__ = [
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "gather",
    "gather_into_tensor",
    "gather_single",
]


@overload
def all_gather(
    tensor_list: list[Array],
    tensor: Array,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def all_gather(
    tensor_list: list[Array],
    tensor: Array,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def all_gather(
    tensor_list: list[Array],
    tensor: Array,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def all_gather(
    tensor_list: list[Array],
    tensor: Array,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Collect `tensor` of every rank in `tensor_list` of every rank, by group rank.

    `tensor_list` holds one output per rank. Each output has as many elements as the
    `tensor` of its rank; this number may differ between ranks. All arrays have the same
    dtype.

    Raises:
        TypeError: `tensor_list` is not a list.
        RuntimeError: it does not have one entry per rank.
        ValueError: dtypes differ, or the output for this rank has another number of
            elements than `tensor`.

    Example:
        ```python
        parts = [np.empty(2) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, np.full(2, dist.get_rank()))
        ```
    """
    return carrier_of(group).all_gather(tensor_list, tensor, timeout, async_op)


@overload
def all_gather_single(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def all_gather_single(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def all_gather_single(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def all_gather_single(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Collect `input_tensor` of every rank in one `output_tensor`, by group rank.

    `output_tensor` has as many elements as all inputs together: concatenated along the
    first dimension or stacked along a new one. Both have the same dtype.

    Raises:
        ValueError: dtypes differ, or the output has another number of elements.

    Example:
        ```python
        everyone = np.empty((dist.get_world_size(), 2))
        dist.all_gather_single(everyone, np.full(2, float(dist.get_rank())))
        ```
    """
    return carrier_of(group).all_gather_single(
        output_tensor, input_tensor, timeout, async_op
    )


@overload
def all_gather_into_tensor(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def all_gather_into_tensor(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def all_gather_into_tensor(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def all_gather_into_tensor(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """The older name of `all_gather_single`; warns."""
    warnings.warn(
        "`allhands.all_gather_into_tensor` is deprecated. Please use "
        "`allhands.all_gather_single` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return all_gather_single(
        output_tensor, input_tensor, group, async_op, timeout=timeout
    )


def _all_gather_base(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """The oldest name of `all_gather_single`, which programs still use; warns."""
    warnings.warn(
        "`allhands._all_gather_base` is a private function and will be deprecated. "
        "Please use `allhands.all_gather_single` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return all_gather_single(output_tensor, input_tensor, group, async_op)


@overload
def gather(
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
def gather(
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
def gather(
    tensor: Array,
    gather_list: list[Array] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def gather(
    tensor: Array,
    gather_list: list[Array] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Collect `tensor` of every rank in `gather_list` of one rank, by group rank.

    The destination is `dst`, a global rank, or `group_dst`, a rank of `group`; by
    default global rank 0. The destination passes one output per rank. The other ranks
    pass no list. All arrays have the same number of elements and dtype.

    Raises:
        ValueError: the list is missing on the destination or given on another rank;
            dtypes or numbers of elements differ; `dst` is not in the group.
        RuntimeError: the list does not have one entry per rank; there is no such rank.

    Example:
        ```python
        is_root = dist.get_rank() == 0
        parts = [np.empty(2) for _ in range(dist.get_world_size())] if is_root else None
        dist.gather(np.full(2, float(dist.get_rank())), parts, dst=0)
        ```
    """
    carrier, root = carrier_and_root(group, dst, group_dst, default=0)
    return carrier.gather(tensor, gather_list, root, timeout, async_op)


@overload
def gather_single(
    tensor: Array,
    gather_tensor: Array | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: Literal[False] = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def gather_single(
    tensor: Array,
    gather_tensor: Array | None = None,
    dst: int | None = None,
    group: Group = None,
    *,
    async_op: Literal[True],
    group_dst: int | None = None,
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def gather_single(
    tensor: Array,
    gather_tensor: Array | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def gather_single(
    tensor: Array,
    gather_tensor: Array | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Collect `tensor` of every rank in one `gather_tensor` of one rank, by group rank.

    The destination is `dst`, a global rank, or `group_dst`, a rank of `group`; by
    default global rank 0. The `gather_tensor` of the destination has as many elements
    as all inputs together: concatenated along the first dimension or stacked along a
    new one. The other ranks pass none. All arrays have the same dtype.

    Raises:
        ValueError: `gather_tensor` is missing on the destination or given on another
            rank; dtypes differ, or it has another number of elements; `dst` is not in
            the group.
        RuntimeError: there is no such rank.

    Example:
        ```python
        is_root = dist.get_rank() == 0
        everyone = np.empty((dist.get_world_size(), 2)) if is_root else None
        dist.gather_single(np.full(2, float(dist.get_rank())), everyone, dst=0)
        ```
    """
    carrier, root = carrier_and_root(group, dst, group_dst, default=0)
    return carrier.gather_single(tensor, gather_tensor, root, timeout, async_op)


@overload
def gather_into_tensor(
    tensor: Array,
    gather_tensor: Array | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: Literal[False] = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def gather_into_tensor(
    tensor: Array,
    gather_tensor: Array | None = None,
    dst: int | None = None,
    group: Group = None,
    *,
    async_op: Literal[True],
    group_dst: int | None = None,
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def gather_into_tensor(
    tensor: Array,
    gather_tensor: Array | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def gather_into_tensor(
    tensor: Array,
    gather_tensor: Array | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """The older name of `gather_single`; warns."""
    warnings.warn(
        "`allhands.gather_into_tensor` is deprecated. Please use "
        "`allhands.gather_single` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return gather_single(
        tensor, gather_tensor, dst, group, async_op, group_dst, timeout=timeout
    )
