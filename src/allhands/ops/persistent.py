"""Persistent operations, as in MPI-4: prepared once, run many times.

A training loop calls the same operation on the same arrays in each step. Each function
here takes the arguments of the plain call (without `async_op`), checks them, and
returns a `PersistentRequest`, which runs the operation with the lowest latency. The
function does not communicate, and the other ranks need not use a persistent operation.
The conventions of `collectives` and `reductions` apply to each run. `timeout` limits
each run. On a rank outside the group the functions return None and warn.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from allhands.arrays import Array
from allhands.backends.call import Call
from allhands.backends.request import PersistentRequest
from allhands.groups.arguments import Group, resolve
from allhands.options import RedOpType, ReduceOp

__all__ = [
    "all_gather_single_init",
    "all_reduce_init",
    "all_to_all_single_init",
    "barrier_init",
    "broadcast_init",
    "gather_init",
    "reduce_init",
    "reduce_scatter_single_init",
    "scatter_init",
]


def all_reduce_init(
    tensor: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> PersistentRequest | None:
    """Prepare `all_reduce` of `tensor`, to be run any number of times.

    Raises:
        ValueError, TypeError, RuntimeError: as `all_reduce` for these arguments.

    Example:
        ```python
        total = dist.all_reduce_init(loss)
        for _ in range(3):
            loss[:] = 1
            total()  # loss is the number of ranks
        ```
    """
    member = resolve(group)
    return member.communicator.prepare(
        Call("all_reduce", tensor, tensor, timeout, reduce_op=op)
    )


def reduce_init(
    tensor: Array,
    dst: int | None = None,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> PersistentRequest | None:
    """Prepare `reduce` of `tensor`, to be run any number of times.

    Raises:
        ValueError, TypeError, RuntimeError: as `reduce` for these arguments.

    Example:
        ```python
        collect_loss = dist.reduce_init(loss, dst=0)
        collect_loss()
        ```
    """
    member = resolve(group)
    root = member.rank_meant(dst, group_dst)
    return member.communicator.prepare(
        Call("reduce", tensor, tensor, timeout, root=root, reduce_op=op)
    )


def reduce_scatter_single_init(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> PersistentRequest | None:
    """Prepare `reduce_scatter_single`, to be run any number of times.

    Raises:
        ValueError, TypeError, RuntimeError: as `reduce_scatter_single` for these
            arguments.

    Example:
        ```python
        my_share = dist.reduce_scatter_single_init(share, gradient, dist.ReduceOp.AVG)
        my_share()
        ```
    """
    member = resolve(group)
    return member.communicator.prepare(
        Call("reduce_scatter_single", output, input, timeout, reduce_op=op)
    )


def broadcast_init(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> PersistentRequest | None:
    """Prepare `broadcast` of `tensor`, to be run any number of times.

    Raises:
        ValueError, TypeError, RuntimeError: as `broadcast` for these arguments.

    Example:
        ```python
        share_weights = dist.broadcast_init(weights, src=0)
        share_weights()
        ```
    """
    member = resolve(group)
    root = member.rank_meant(src, group_src)
    return member.communicator.prepare(
        Call("broadcast", tensor, tensor, timeout, root=root)
    )


def all_gather_single_init(
    output_tensor: Array,
    input_tensor: Array,
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> PersistentRequest | None:
    """Prepare `all_gather_single`, to be run any number of times.

    Raises:
        ValueError, TypeError, RuntimeError: as `all_gather_single` for these arguments.

    Example:
        ```python
        gather_states = dist.all_gather_single_init(states, state)
        gather_states()
        ```
    """
    member = resolve(group)
    return member.communicator.prepare(
        Call("all_gather_single", output_tensor, input_tensor, timeout)
    )


def gather_init(
    tensor: Array,
    gather_list: list[Array] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> PersistentRequest | None:
    """Prepare `gather`, to be run any number of times.

    Raises:
        ValueError, TypeError, RuntimeError: as `gather` for these arguments.

    Example:
        ```python
        collect = dist.gather_init(mine, parts if rank == 0 else None, dst=0)
        collect()
        ```
    """
    member = resolve(group)
    root = member.rank_meant(dst, group_dst, default=0)
    return member.communicator.prepare(
        Call("gather", gather_list, tensor, timeout, root=root)
    )


def scatter_init(
    tensor: Array,
    scatter_list: list[Array] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> PersistentRequest | None:
    """Prepare `scatter`, to be run any number of times.

    Raises:
        ValueError, TypeError, RuntimeError: as `scatter` for these arguments.

    Example:
        ```python
        hand_out = dist.scatter_init(mine, rows if rank == 0 else None, src=0)
        hand_out()
        ```
    """
    member = resolve(group)
    root = member.rank_meant(src, group_src, default=0)
    return member.communicator.prepare(
        Call("scatter", tensor, scatter_list, timeout, root=root)
    )


def all_to_all_single_init(
    output: Array,
    input: Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    *,
    timeout: timedelta | None = None,
) -> PersistentRequest | None:
    """Prepare `all_to_all_single`, to be run any number of times.

    Raises:
        ValueError, TypeError, RuntimeError: as `all_to_all_single` for these arguments.

    Example:
        ```python
        exchange = dist.all_to_all_single_init(received, rows)
        exchange()
        ```
    """
    member = resolve(group)
    return member.communicator.prepare(
        Call(
            "all_to_all_single",
            output,
            input,
            timeout,
            output_splits=output_split_sizes,
            input_splits=input_split_sizes,
        )
    )


def barrier_init(
    group: Group = None, *, timeout: timedelta | None = None
) -> PersistentRequest | None:
    """Prepare `barrier`, to be run any number of times.

    Example:
        ```python
        meet = dist.barrier_init()
        meet()
        ```
    """
    member = resolve(group)
    return member.communicator.prepare(Call("barrier", timeout=timeout))
