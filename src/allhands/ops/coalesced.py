"""Collectives on several arrays in one call.

The conventions of the module `collectives` also apply here. With `async_op` the
functions return a future of the outputs, as in torch, not a `Work`.
`_coalescing_manager` keeps torch's name, underscore included, because programs use it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from allhands.arrays import Array
from allhands.arrays.lists import check_list
from allhands.backends.work import CombinedWork, Work
from allhands.groups.arguments import Group, is_outside, resolve
from allhands.groups.coalescing import coalescing
from allhands.options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    RedOpType,
    ReduceOp,
    as_timedelta,
)

__all__ = ["CoalescedCalls", "all_gather_coalesced", "all_reduce_coalesced"]


def all_reduce_coalesced(
    tensors: list[Array] | Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Any:
    """`all_reduce` of each of `tensors`, as one operation; warns.

    Every rank passes the same number of arrays, with the same sizes. With a backend of
    this package the arrays may share memory, because all are read before any is
    written. All arrays have the same dtype, with one exception: with SUM, AVG and
    PREMUL_SUM complex arrays may be among real ones, `complex64` among `float32` and
    `complex128` among `float64`.

    Returns:
        A future of `tensors` if `async_op`, else None.

    Raises:
        ValueError: the dtypes cannot be combined.

    Example:
        ```python
        dist.all_reduce_coalesced([np.ones(2), np.ones(3)])
        ```
    """
    _warn("all_reduce_coalesced", "all_reduce")
    member = resolve(group)
    if is_outside(member, "all_reduce_coalesced"):
        return None
    several = tensors if isinstance(tensors, list) else [tensors]
    options = AllreduceCoalescedOptions(timeout=_of(timeout), reduceOp=op)
    return _ended(member.allreduce_coalesced(several, options), async_op)


def all_gather_coalesced(
    output_tensor_lists: list[list[Array]],
    input_tensor_list: list[Array],
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Any:
    """`all_gather` of each array of a list, as one operation; warns.

    Entry i of `input_tensor_list` of rank r comes to `output_tensor_lists[r][i]` of
    every rank. Every rank passes the same number of arrays, with the same sizes.

    Returns:
        A future of `output_tensor_lists` if `async_op`, else None.

    Raises:
        TypeError: an argument is not a list.
        RuntimeError: a list does not have one entry per rank, or one per input.
        ValueError: dtypes or numbers of elements differ.

    Example:
        ```python
        inputs = [np.ones(2), np.ones(3)]
        size = dist.get_world_size()
        outputs = [[np.empty(2), np.empty(3)] for _ in range(size)]
        dist.all_gather_coalesced(outputs, inputs)
        ```
    """
    _warn("all_gather_coalesced", "all_gather")
    check_list("output_tensor_lists", output_tensor_lists)
    check_list("input_tensor_list", input_tensor_list)
    member = resolve(group)
    if is_outside(member, "all_gather_coalesced"):
        return None
    options = AllgatherOptions(timeout=_of(timeout))
    work = member.allgather_coalesced(output_tensor_lists, input_tensor_list, options)
    return _ended(work, async_op)


class CoalescedCalls:
    """The operations of a `_coalescing_manager` block, which it yields as one."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None) -> None:
        """Add an operation that was started outside the block."""
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Return when all operations have ended.

        Raises:
            DistBackendError: an operation failed; this is the error of the first that
                did.
        """
        CombinedWork(self.works, []).wait()


@contextmanager
def _coalescing_manager(
    group: Group = None, device: Any = None, async_ops: bool = False
) -> Iterator[CoalescedCalls]:
    """Start the operations on `group` in a `with` block, and wait for all at its end.

    Within the block, each collective, `isend` and `irecv` of this thread returns at
    once, with or without `async_op`. The program must not use its arrays until the
    block ends, or with `async_ops` until it has called `wait()` on the object that the
    block yields. Everything else works as outside the block, after the operations
    started so far: `send` and `recv`, `monitored_barrier`, object operations, and the
    group's methods. The block does not affect other threads. `device` has no effect on
    arrays in CPU memory.

    Example:
        ```python
        with _coalescing_manager() as calls:
            for gradient in gradients:
                dist.all_reduce(gradient)
        ```
    """
    member = resolve(group)
    calls = CoalescedCalls()
    with coalescing(member, calls.works):
        yield calls
    if not async_ops:
        calls.wait()


def _of(timeout: timedelta | None) -> timedelta:
    """Return `timeout` as options hold it: negative for the group's timeout."""
    return timedelta(milliseconds=-1) if timeout is None else as_timedelta(timeout)


def _ended(work: Work, async_op: bool) -> Any:
    if async_op:
        return work.get_future()
    work.wait()
    return None


def _warn(name: str, instead: str) -> None:
    warnings.warn(
        f"`allhands.{name}` is deprecated. Please use `allhands.{instead}` of each "
        f"array, with `async_op`, instead.",
        FutureWarning,
        stacklevel=3,
    )
