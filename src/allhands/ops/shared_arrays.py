"""Shared arrays: arrays in memory that all ranks of a group have mapped.

torch has the same for GPUs and calls it symmetric memory. A collective on shared arrays
reads the other ranks' data in place instead of staging it. A rank may also read the
array of another rank itself.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from allhands.arrays import Array
from allhands.groups.arguments import Group, is_outside, resolve
from allhands.groups.world import current

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

__all__ = ["empty_shared", "peer_array"]

Scalar = TypeVar("Scalar", bound="np.generic")
SharedArray = TypeVar("SharedArray", bound=Array)


@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: type[Scalar] | np.dtype[Scalar],
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> npt.NDArray[Scalar]: ...
@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: npt.DTypeLike,
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> npt.NDArray[Any]: ...
@overload
def empty_shared(
    shape: int | Sequence[int],
    dtype: torch.dtype,
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> torch.Tensor: ...
def empty_shared(
    shape: int | Sequence[int],
    dtype: Any,
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> Array:
    """Make an array in memory that all ranks of `group` share; each rank gets its own.

    Every rank calls it with the same number of elements and `dtype`, in the same order
    relative to collectives on `group`. With a `torch.dtype` the call returns a torch
    tensor, and with anything that `numpy.dtype` accepts a NumPy array. The array is
    contiguous, holds zeros, and begins on a page. The call returns when all ranks have
    their arrays.

    Use it like any array. Collectives on `group` copy nothing through staging if the
    memory that they read on every rank is contiguous, has 16 KiB or more, and lies in
    arrays of the same call of `empty_shared`, in whole or in part. Otherwise they work
    as with other arrays. Peers see data that a rank writes into its array, so between
    collectives they may read it with `peer_array`; the page "Shared arrays" says when.

    The memory is freed when, on every rank, the array and its views are gone or the
    process has ended. It may outlive the group.

    Returns:
        The array; None, with a warning, on a rank that is not in `group`.

    Raises:
        CollectiveMismatchError: ranks differ in number of elements or `dtype`.
        DistBackendError: the host does not have enough memory, or the ranks are on
            several hosts. The group stays usable.
        TypeError: elements of `dtype` cannot be communicated.
        ValueError: a size is negative, or the array is larger than memory can be.

    Example:
        ```python
        gradient = dist.empty_shared((1024, 1024), np.float32)
        gradient[...] = compute()
        dist.all_reduce(gradient)
        ```
    """
    sizes = _sizes(shape)
    member = resolve(group)
    if is_outside(member, "empty_shared"):
        return None
    current().meet_faults(member.group_name, "empty_shared")
    return member.communicator.empty_shared(sizes, dtype, timeout)


def peer_array(
    array: SharedArray,
    peer: int | None = None,
    group: Group = None,
    group_peer: int | None = None,
) -> SharedArray:
    """Return another rank's memory that corresponds to `array`, without a copy.

    `array` is an array that `empty_shared` made on `group`, or a contiguous view of it.
    `peer` is a global rank, or `group_peer` a rank of `group`. The result has the shape
    and dtype of `array` and is the memory of that rank, so both ranks see what either
    of them writes. The call neither communicates nor waits. The ranks have to agree on
    who may read and write when, by a collective such as `barrier` in between.

    Returns:
        An array of the same library as `array`, which it keeps alive; None, with a
        warning, on a rank that is not in `group`.

    Raises:
        ValueError: `array` is not in the shared memory of `group`, or the peer is not
            in `group`.

    Example:
        ```python
        mine = dist.empty_shared(4, np.float32)
        mine[...] = dist.get_rank()
        dist.barrier()
        last = dist.peer_array(mine, dist.get_world_size() - 1)
        ```
    """
    member = resolve(group)
    if is_outside(member, "peer_array"):
        return cast(SharedArray, None)
    rank = member.rank_meant(peer, group_peer)
    return cast(SharedArray, member.communicator.peer_array(array, rank))


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    listed = shape if isinstance(shape, Sequence) else [shape]
    sizes = tuple(map(operator.index, listed))
    for size in sizes:
        if not 0 <= size <= sys.maxsize:
            raise ValueError(
                f"empty_shared: sizes must be in [0, {sys.maxsize}], got {size} in "
                f"shape {sizes}"
            )
    return sizes
