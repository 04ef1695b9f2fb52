"""The collectives that move arrays: each resolves the group and delegates.

These conventions apply to all collectives, also to those of `gathers`, `reductions` and
`coalesced`. The docstrings below do not repeat them:

- Every rank of the group calls the same collective, in the same order relative to other
  calls on the group. Otherwise every rank gets `CollectiveMismatchError` with both
  sides, before any output is written. The next call works again.
- A call returns None when this rank's outputs hold the result. With `async_op=True` it
  returns a `Work` at once, and the program must not use the arrays until `Work.wait()`
  returns. Bad arguments raise at once in both forms. Later failures raise in
  `Work.wait()`.
- `timeout`, a timedelta, limits this call; by default the group's timeout does. A
  negative `timeout` raises `ValueError`.
- `RankFailedError`, `CollectiveTimeoutError` and every other `DistBackendError` except
  the mismatch break the group: further calls raise at once.
- Before `init_process_group` a call raises `ValueError`. On a rank outside the group it
  returns None and warns. (For type checkers, the result with `async_op=True` is always
  a `Work`: a program that calls on ranks outside the group knows which ranks these
  are.)
- Arrays are numpy arrays, torch CPU tensors or objects with the buffer protocol (such
  as `bytearray`). Their elements are bool, integers, float16/32/64, bfloat16 or
  complex64/128; 8-bit floats (and torch's `float4_e2m1fn_x2`) can be moved, but not
  reduced. They may be contiguous or strided, and have any shape; elements
  correspond in row-major order. Anything else raises `TypeError`. An output must be
  writable and must not overlap itself, and a view must lie within the memory that it
  views; otherwise the call raises `ValueError`. If an operation only moves data,
  complex numbers may go into real arrays and back: each complex number counts as two
  real ones along a last dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, overload

from allhands.arrays import Array
from allhands.backends.work import Work
from allhands.groups.arguments import Group, carrier_and_root, carrier_of

__all__ = [
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "scatter",
]


@overload
def broadcast(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    async_op: Literal[False] = False,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def broadcast(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    *,
    async_op: Literal[True],
    group_src: int | None = None,
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def broadcast(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
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
    is only read. Every rank names the same source, and passes an array with the same
    number of elements and the same dtype.

    Raises:
        ValueError: the call names both or none of `src` and `group_src`; `src` is not
            in the group.
        RuntimeError: there is no such rank.

    Example:
        ```python
        weights = load() if dist.get_rank() == 0 else np.empty(shape)
        dist.broadcast(weights, src=0)
        ```
    """
    carrier, root = carrier_and_root(group, src, group_src)
    return carrier.broadcast(tensor, root, timeout, async_op)


@overload
def scatter(
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
def scatter(
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
def scatter(
    tensor: Array,
    scatter_list: list[Array] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
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
    global rank 0. The source passes one input per rank. The other ranks pass no list.
    All arrays have the same number of elements and dtype.

    Raises:
        ValueError: the list is missing on the source or given on another rank; dtypes
            or numbers of elements differ; `src` is not in the group.
        RuntimeError: the list does not have one entry per rank; there is no such rank.

    Example:
        ```python
        mine = np.empty(2)
        dist.scatter(mine, rows if dist.get_rank() == 0 else None, src=0)
        ```
    """
    carrier, root = carrier_and_root(group, src, group_src, default=0)
    return carrier.scatter(tensor, scatter_list, root, timeout, async_op)


@overload
def all_to_all(
    output_tensor_list: list[Array],
    input_tensor_list: list[Array],
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def all_to_all(
    output_tensor_list: list[Array],
    input_tensor_list: list[Array],
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def all_to_all(
    output_tensor_list: list[Array],
    input_tensor_list: list[Array],
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
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
        TypeError: an argument is not a list.
        RuntimeError: a list does not have one entry per rank.
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


@overload
def all_to_all_single(
    output: Array,
    input: Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def all_to_all_single(
    output: Array,
    input: Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def all_to_all_single(
    output: Array,
    input: Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
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

    `input` is cut along its first dimension into one piece per rank. The pieces have
    `input_split_sizes` rows, or equal sizes if this is not given. The received pieces
    fill `output` in the same way. The sizes of each piece must agree on the sending and
    the receiving rank.

    Raises:
        RuntimeError: the split sizes are not one per rank, or their sum is not the
            number of rows; or there are no split sizes, and the rows cannot be divided
            evenly.
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


@overload
def barrier(
    group: Group = None,
    async_op: Literal[False] = False,
    device_ids: list[int] | None = None,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def barrier(
    group: Group = None,
    *,
    async_op: Literal[True],
    device_ids: list[int] | None = None,
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def barrier(
    group: Group = None,
    async_op: bool = False,
    device_ids: list[int] | None = None,
    timeout: timedelta | None = None,
) -> Work | None: ...
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
