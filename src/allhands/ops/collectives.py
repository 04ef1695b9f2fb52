"""The collectives that move arrays: each resolves the group and delegates.

What holds for all collectives, also those of `reductions` and `coalesced`, and is not
repeated below:

- Every rank of the group calls the same one, in the same order relative to other calls
  on the group. If not, every rank gets `CollectiveMismatchError` with both sides,
  before any output is written; the next call works again.
- A call returns None when this rank's outputs hold the result, or with `async_op=True`
  a `Work` at once; then the arrays must be left alone until `Work.wait()` returns. Bad
  arguments raise at once in both forms, failures in `Work.wait()`.
- `timeout`, a timedelta, limits this call; by default the group's timeout does. A
  negative one is a `ValueError`.
- `RankFailedError`, `CollectiveTimeoutError` or any other `DistBackendError` than the
  mismatch breaks the group: further calls raise at once.
- Before `init_process_group` it is a `ValueError`. On a rank that is not in the group
  it returns None and warns.
- Arrays are numpy arrays, torch CPU tensors or objects with the buffer protocol (as
  `bytearray`) of bool, integers, float16/32/64, bfloat16 or complex64/128, contiguous
  or strided, of any shape; numbers are matched in row-major order. Anything else is a
  `TypeError`. An output must be writable and must not overlap itself; a view must lie
  within the memory that it views (`ValueError`). Where data only moves, complex numbers
  may go into real arrays and back: each counts as two, as the last dimension.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta

from allhands.arrays import Array
from allhands.backends.work import Work
from allhands.groups.arguments import Group, carrier_of, resolve

__all__ = [
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "gather_into_tensor",
    "gather_single",
    "scatter",
]


def broadcast(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Copy `tensor` of one rank to `tensor` of all others, in place.

    The source is `src`, a global rank, or `group_src`, a rank of `group`; its `tensor`
    is only read. Every rank names the same source and passes the same number of
    elements and dtype.

    Raises:
        ValueError: both or none of `src` and `group_src`; `src` is not in the group.
        RuntimeError: there is no such rank.

    Example:
        ```python
        weights = load() if dist.get_rank() == 0 else np.empty(shape)
        dist.broadcast(weights, src=0)
        ```
    """
    member = resolve(group)
    root = member.rank_meant(src, group_src)
    return carrier_of(member).broadcast(tensor, root, timeout, async_op)


def all_gather(
    tensor_list: list[Array],
    tensor: Array,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Collect `tensor` of every rank in `tensor_list` of every rank, by group rank.

    `tensor_list` holds one output per rank, with as many elements as the `tensor` of
    that rank, which may differ from rank to rank. All have the same dtype.

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
    default global rank 0. It passes one output per rank; the others pass no list. All
    arrays have the same number of elements and dtype.

    Raises:
        ValueError: the list is missing on the destination or given elsewhere; dtypes
            or numbers of elements differ; `dst` is not in the group.
        RuntimeError: the list does not have one entry per rank; no such rank.

    Example:
        ```python
        is_root = dist.get_rank() == 0
        parts = [np.empty(2) for _ in range(dist.get_world_size())] if is_root else None
        dist.gather(np.full(2, float(dist.get_rank())), parts, dst=0)
        ```
    """
    member = resolve(group)
    root = member.rank_meant(dst, group_dst, default=0)
    return carrier_of(member).gather(tensor, gather_list, root, timeout, async_op)


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
    default global rank 0. Its `gather_tensor` has as many elements as all inputs
    together: concatenated along the first dimension or stacked along a new one. The
    others pass none. All arrays have the same dtype.

    Raises:
        ValueError: `gather_tensor` is missing on the destination or given elsewhere;
            dtypes differ, or it has another number of elements; `dst` is not in the
            group.
        RuntimeError: no such rank.

    Example:
        ```python
        is_root = dist.get_rank() == 0
        everyone = np.empty((dist.get_world_size(), 2)) if is_root else None
        dist.gather_single(np.full(2, float(dist.get_rank())), everyone, dst=0)
        ```
    """
    member = resolve(group)
    root = member.rank_meant(dst, group_dst, default=0)
    return carrier_of(member).gather_single(
        tensor, gather_tensor, root, timeout, async_op
    )


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


def scatter(
    tensor: Array,
    scatter_list: list[Array] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Give every rank its entry of `scatter_list` of one rank, in `tensor`.

    The source is `src`, a global rank, or `group_src`, a rank of `group`; by default
    global rank 0. It passes one input per rank; the others pass no list. All arrays
    have the same number of elements and dtype.

    Raises:
        ValueError: the list is missing on the source or given elsewhere; dtypes or
            numbers of elements differ; `src` is not in the group.
        RuntimeError: the list does not have one entry per rank; no such rank.

    Example:
        ```python
        mine = np.empty(2)
        dist.scatter(mine, rows if dist.get_rank() == 0 else None, src=0)
        ```
    """
    member = resolve(group)
    root = member.rank_meant(src, group_src, default=0)
    return carrier_of(member).scatter(tensor, scatter_list, root, timeout, async_op)


def all_to_all(
    output_tensor_list: list[Array],
    input_tensor_list: list[Array],
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Send one array to every rank, and receive one from each, by group rank.

    Entry i of `input_tensor_list` goes to rank i, which receives it in the entry of its
    `output_tensor_list` for this rank. Numbers of elements may differ, as long as the
    two ends agree; all arrays have the same dtype.

    Raises:
        TypeError: one of them is not a list.
        RuntimeError: one does not have one entry per rank.
        ValueError: dtypes differ.

    Example:
        ```python
        size = dist.get_world_size()
        received = [np.empty(i + 1) for i in range(size)]
        mine = dist.get_rank() + 1  # rank r sends r + 1 numbers to everyone
        dist.all_to_all(received, [np.ones(mine) for _ in range(size)])
        ```
    """
    return carrier_of(group).all_to_all(
        output_tensor_list, input_tensor_list, timeout, async_op
    )


def all_to_all_single(
    output: Array,
    input: Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Send some rows of `input` to every rank, and receive rows of each in `output`.

    `input` is cut along its first dimension into one piece per rank, of
    `input_split_sizes` rows or else of equal size; the pieces received fill `output`
    likewise. What one rank sends another must be what that one expects.

    Raises:
        RuntimeError: split sizes are not one per rank or do not make up all rows; or
            there are none and the rows cannot be shared evenly.
        ValueError: dtypes differ.

    Example:
        ```python
        size = dist.get_world_size()
        received = np.empty(size)
        dist.all_to_all_single(received, np.arange(size) + 10.0 * dist.get_rank())
        ```
    """
    return carrier_of(group).all_to_all_single(
        output, input, output_split_sizes, input_split_sizes, timeout, async_op
    )


def barrier(
    group: Group = None,
    async_op: bool = False,
    device_ids: list[int] | None = None,
    timeout: timedelta | None = None,
) -> Work | None:
    """Return once every rank of `group` has called it.

    `device_ids` is for backends of devices; the native one does not need it.

    Example:
        ```python
        if dist.get_rank() == 0:
            download()
        dist.barrier()  # the file is there on every rank of this host
        ```
    """
    return carrier_of(group).barrier(timeout, async_op)
