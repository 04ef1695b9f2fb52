"""The collectives of `allhands`: each checks, resolves the group, and delegates.

What holds for all of them, and is not repeated below:

- Every rank of the group calls the same one, in the same order relative to other calls
  on the group. If not, every rank gets `CollectiveMismatchError` with both sides,
  before any output is written; the next call works again.
- A call returns None when this rank's outputs hold the result, or with `async_op=True`
  a `Work` at once; then the arrays must be left alone until `Work.wait()` returns. Bad
  arguments raise at once in both forms, failures in `Work.wait()`.
- `timeout` limits this call; by default the group's timeout does.
- `RankFailedError`, `CollectiveTimeoutError` or another `DistBackendError` breaks the
  group: further calls raise at once.
- On a rank that is not in the group it returns None and warns.
- Arrays are numpy arrays or torch CPU tensors of bool, integers, float16/32/64,
  bfloat16 or complex64/128, contiguous or strided, of any shape; numbers are matched in
  row-major order. An output must be writable and must not overlap itself
  (`ValueError`).
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import TypeAlias

from allhands.arrays import Array
from allhands.options import RedOpType, ReduceOp
from allhands.process_group import ProcessGroup
from allhands.work import Work
from allhands.world import current, resolve

__all__ = [
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "barrier",
    "broadcast",
]

Group: TypeAlias = "ProcessGroup | int | None"


def all_reduce(
    tensor: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Reduce `tensor` across all ranks of `group`; all get the result, in place.

    Every rank passes the same number of elements, the same dtype and the same `op`. The
    result has the same bits on every rank. 16-bit floats are accumulated in float32 and
    rounded once.

    Raises:
        RuntimeError: BAND, BOR or BXOR of numbers that are not integers or bool.
        ValueError: MIN or MAX of complex numbers.

    Example:
        ```python
        gradient = np.ones(3) * dist.get_rank()
        dist.all_reduce(gradient, dist.ReduceOp.AVG)  # 2 ranks: [0.5, 0.5, 0.5]
        ```
    """
    member = resolve(group)
    if member is None:
        warn_non_member("all_reduce")
        return None
    return member.all_reduce(tensor, op, timeout, async_op)


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

    The source is `src`, a global rank, or `group_src`, a rank of `group`. Every rank
    names the same and passes the same number of elements and dtype.

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
    if member is None:
        warn_non_member("broadcast")
        return None
    root = root_of(member, src, group_src)
    return member.broadcast(tensor, root, timeout, async_op)


def all_gather(
    tensor_list: list[Array],
    tensor: Array,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Collect `tensor` of every rank in `tensor_list` of every rank, by group rank.

    `tensor_list` holds one output per rank; all have the dtype of `tensor` and its
    number of elements.

    Raises:
        TypeError: `tensor_list` is not a list.
        RuntimeError: it does not have one entry per rank.
        ValueError: dtypes or numbers of elements differ.

    Example:
        ```python
        parts = [np.empty(2) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, np.full(2, dist.get_rank()))
        ```
    """
    check_list("tensor_list", tensor_list)
    member = resolve(group)
    if member is None:
        warn_non_member("all_gather")
        return None
    return member.all_gather(tensor_list, tensor, timeout, async_op)


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
    member = resolve(group)
    if member is None:
        warn_non_member("all_gather_single")
        return None
    return member.all_gather_single(output_tensor, input_tensor, timeout, async_op)


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
    member = resolve(group)
    if member is None:
        warn_non_member("barrier")
        return None
    return member.barrier(device_ids, timeout, async_op)


def warn_non_member(operation: str) -> None:
    """What an operation on a group does on a rank that is not in it."""
    world = current().default
    rank = -1 if world is None else world.rank()
    warnings.warn(
        f"Running {operation} on global rank {rank} which does not belong to the given "
        f"group.",
        UserWarning,
        stacklevel=3,
    )


def root_of(group: ProcessGroup, root: int | None, group_root: int | None) -> int:
    """The rank in `group` that is meant by a global or else by a group rank.

    Raises:
        ValueError: both are given or none, or the global rank is not in the group.
    """
    if root is not None:
        if group_root is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        return group.group_rank(root)
    if group_root is None:
        raise ValueError("Must specify global_rank or group_rank")
    return group_root


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
