"""The collectives that reduce arrays: each resolves the group and delegates.

These conventions apply to all of them, besides those of the module `collectives`:

- Every rank passes the same `op`, dtype and number of elements. With PREMUL_SUM each
  rank may have its own factor.
- Values are combined in rank order, so a result has the same bits on every rank and in
  every run. 16-bit floats are accumulated in float32 and rounded once.
- BAND, BOR and BXOR of numbers that are not integers or bool raise `RuntimeError`. MIN
  and MAX of complex numbers raise `ValueError`. AVG of bool raises `TypeError`.
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Literal, overload

from allhands.arrays import Array
from allhands.backends.work import Work
from allhands.groups.arguments import Group, carrier_and_root, carrier_of
from allhands.options import RedOpType, ReduceOp

__all__ = [
    "all_reduce",
    "exscan",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scan",
]


@overload
def all_reduce(
    tensor: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def all_reduce(
    tensor: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def all_reduce(
    tensor: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
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

    `tensor` may be a sparse torch tensor in coordinate format (COO). Then every rank
    passes such a tensor, with the same number of elements in its sparse dimensions and
    in its dense ones. For every `op` the result is that of the dense tensors. It has
    each index that some rank has, in order (it is coalesced); a rank without this index
    counts as zero there. The tensor gets new memory for its indices and values.

    Raises:
        RuntimeError: `tensor` has another sparse layout; the message says what to pass.

    Example:
        ```python
        gradient = np.ones(3) * dist.get_rank()
        dist.all_reduce(gradient, dist.ReduceOp.AVG)  # 2 ranks: [0.5, 0.5, 0.5]
        ```
    """
    return carrier_of(group).all_reduce(tensor, op, timeout, async_op)


@overload
def reduce(
    tensor: Array,
    dst: int | None = None,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: Literal[False] = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def reduce(
    tensor: Array,
    dst: int | None = None,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    async_op: Literal[True],
    group_dst: int | None = None,
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def reduce(
    tensor: Array,
    dst: int | None = None,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def reduce(
    tensor: Array,
    dst: int | None = None,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Reduce `tensor` across all ranks of `group`; one gets the result, in place.

    The destination is `dst`, a global rank, or `group_dst`, a rank of `group`. On the
    other ranks `tensor` is only read.

    Raises:
        ValueError: the call names both or none of `dst` and `group_dst`; `dst` is not
            in the group.
        RuntimeError: there is no such rank.

    Example:
        ```python
        loss = np.array([compute_loss()])
        dist.reduce(loss, dst=0, op=dist.ReduceOp.AVG)
        ```
    """
    carrier, root = carrier_and_root(group, dst, group_dst)
    return carrier.reduce(tensor, root, op, timeout, async_op)


@overload
def scan(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def scan(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def scan(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def scan(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Reduce `input` across the ranks up to this one, in `output`: MPI's `Scan`.

    Rank r gets the same bits as from `all_reduce` in a group of the ranks 0 to r. With
    AVG this is the average of the first r + 1 inputs. `output` may be the same array as
    `input`; otherwise they must not share memory.

    Raises:
        ValueError: dtypes or numbers of elements differ; the arrays share memory
            without being the same array.

    Example:
        ```python
        mine = np.array([len(samples)])
        end = np.empty_like(mine)
        dist.scan(end, mine)  # this rank's samples end there, counted over all ranks
        ```
    """
    return carrier_of(group).scan(output, input, op, timeout, async_op)


@overload
def exscan(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def exscan(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def exscan(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def exscan(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Reduce `input` across the ranks before this one, in `output`: MPI's `Exscan`.

    This is `scan` without this rank's own input. On rank 0, which has no rank before
    it, `output` does not change.

    Raises:
        ValueError: dtypes or numbers of elements differ; the arrays share memory
            without being the same array.

    Example:
        ```python
        mine = np.array([len(samples)])
        begin = np.zeros_like(mine)
        dist.exscan(begin, mine)  # where this rank's samples begin
        ```
    """
    return carrier_of(group).exscan(output, input, op, timeout, async_op)


@overload
def reduce_scatter(
    output: Array,
    input_list: list[Array],
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def reduce_scatter(
    output: Array,
    input_list: list[Array],
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def reduce_scatter(
    output: Array,
    input_list: list[Array],
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def reduce_scatter(
    output: Array,
    input_list: list[Array],
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Reduce the lists of all ranks entry by entry; rank i gets entry i, in `output`.

    `input_list` has one array per rank. Its entries may have different numbers of
    elements, but each entry has the same number on all ranks. `output` has as many
    elements as the entry for this rank.

    Raises:
        TypeError: `input_list` is not a list.
        RuntimeError: the list does not have one entry per rank.
        ValueError: dtypes or numbers of elements differ.

    Example:
        ```python
        shares = np.array_split(gradient, dist.get_world_size())
        mine = np.empty_like(shares[dist.get_rank()])
        dist.reduce_scatter(mine, shares)
        ```
    """
    return carrier_of(group).reduce_scatter(output, input_list, op, timeout, async_op)


@overload
def reduce_scatter_single(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def reduce_scatter_single(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def reduce_scatter_single(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def reduce_scatter_single(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """Reduce `input` across all ranks; each gets its equal share of it in `output`.

    `input` has as many elements as all outputs together: concatenated along the first
    dimension or stacked along a new one.

    Raises:
        ValueError: dtypes differ, or the input has another number of elements.

    Example:
        ```python
        mine = np.empty(2)
        dist.reduce_scatter_single(mine, np.ones((dist.get_world_size(), 2)))
        ```
    """
    return carrier_of(group).reduce_scatter_single(output, input, op, timeout, async_op)


@overload
def reduce_scatter_tensor(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: Literal[False] = False,
    *,
    timeout: timedelta | None = None,
) -> None: ...
@overload
def reduce_scatter_tensor(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    *,
    async_op: Literal[True],
    timeout: timedelta | None = None,
) -> Work: ...
@overload
def reduce_scatter_tensor(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None: ...
def reduce_scatter_tensor(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: timedelta | None = None,
) -> Work | None:
    """The older name of `reduce_scatter_single`; warns."""
    warnings.warn(
        "`allhands.reduce_scatter_tensor` is deprecated. Please use "
        "`allhands.reduce_scatter_single` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return reduce_scatter_single(output, input, op, group, async_op, timeout=timeout)


def _reduce_scatter_base(
    output: Array,
    input: Array,
    op: RedOpType | ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """The oldest name of `reduce_scatter_single`, which programs still use; warns."""
    warnings.warn(
        "`allhands._reduce_scatter_base` is a private function and will be deprecated. "
        "Please use `allhands.reduce_scatter_single` instead.",
        FutureWarning,
        stacklevel=2,
    )
    return reduce_scatter_single(output, input, op, group, async_op)
