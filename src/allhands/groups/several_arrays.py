"""Lists of several arrays of one rank, in torch's methods of a group.

torch took them from programs that drive several devices in one process: each array
counts as if a rank of its own had passed it. One array in the list is the usual case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from allhands.arrays import Array
from allhands.backends.work import CombinedWork, Work
from allhands.errors import ArgumentError
from allhands.options import RedOpType, ReduceOp

__all__ = [
    "as_one",
    "check_alike",
    "check_source",
    "listed",
    "only",
    "spread",
    "united",
]


def _add(mine: Any, other: Any) -> None:
    mine += other


def _multiply(mine: Any, other: Any) -> None:
    mine *= other


def _minimum(mine: Any, other: Any) -> None:
    chosen = (other < mine) | (other != other)
    mine[chosen] = other[chosen]


def _maximum(mine: Any, other: Any) -> None:
    chosen = (other > mine) | (other != other)
    mine[chosen] = other[chosen]


def _and(mine: Any, other: Any) -> None:
    mine &= other


def _or(mine: Any, other: Any) -> None:
    mine |= other


def _xor(mine: Any, other: Any) -> None:
    mine ^= other


_INTO: dict[RedOpType, Callable[[Any, Any], None]] = {
    RedOpType.SUM: _add,
    RedOpType.AVG: _add,  # the ranks divide by their number, as in torch
    RedOpType.PREMUL_SUM: _add,
    RedOpType.PRODUCT: _multiply,
    RedOpType.MIN: _minimum,
    RedOpType.MAX: _maximum,
    RedOpType.BAND: _and,
    RedOpType.BOR: _or,
    RedOpType.BXOR: _xor,
}


def listed(tensors: Any, tensor: Any = None) -> list[Any]:
    """Return the arrays of a call, which has a list of them or one array.

    Raises:
        ArgumentError: the list is empty.
    """
    if tensor is not None:
        return [tensor]
    if not isinstance(tensors, (list, tuple)):
        return [tensors]
    if not tensors:
        raise ArgumentError(
            "There were no tensor arguments to this function: it requires a non-empty "
            "tensor list, got []"
        )
    return list(tensors)


def only(tensors: Any, tensor: Any = None) -> Array:
    """Return the array of a call that takes one, maybe in a list.

    Raises:
        ArgumentError: the list does not hold one array.
    """
    arrays = listed(tensors, tensor)
    if len(arrays) != 1:
        raise ArgumentError(
            f"this operation requires a single-element tensor list, got "
            f"{len(arrays)} arrays: pass one array per rank"
        )
    array: Array = arrays[0]
    return array


def check_alike(arrays: Sequence[Any]) -> None:
    """Refuse arrays of one rank that differ.

    Raises:
        ArgumentError: their dtypes or shapes differ.
    """
    first = arrays[0]
    for index, array in enumerate(arrays[1:], 1):
        if array.dtype != first.dtype:
            raise ArgumentError(
                f"invalid tensor type at index {index} (expected {first.dtype}, got "
                f"{array.dtype})"
            )
        if array.shape != first.shape:
            raise ArgumentError(
                f"invalid tensor size at index {index} (expected "
                f"{tuple(first.shape)}, got {tuple(array.shape)})"
            )


def united(arrays: Sequence[Any], op: RedOpType | ReduceOp) -> None:
    """Reduce arrays of this rank, each of which then holds the result."""
    reduce_into = _INTO[op if isinstance(op, RedOpType) else op.op]
    for other in arrays[1:]:
        reduce_into(arrays[0], other)
    spread(arrays, 0)


def check_source(arrays: Sequence[Any], source: int) -> None:
    """Refuse a number of one of the arrays that none has.

    Raises:
        ArgumentError: there is no such array.
    """
    if not 0 <= source < len(arrays):
        raise ArgumentError(
            f"invalid root tensor: {source}; it must be in [0, {len(arrays)})"
        )


def spread(arrays: Sequence[Any], source: int) -> None:
    """Copy one of the arrays to all others."""
    for index, array in enumerate(arrays):
        if index != source:
            array[...] = arrays[source]


def as_one(works: Sequence[Work | None], outputs: list[Any]) -> Work | None:
    """Return one handle of operations of one call; None if all of them have ended.

    `outputs` are the arrays that they write.
    """
    if len(works) == 1:
        return works[0]
    pending = [work for work in works if work is not None]
    return CombinedWork(pending, outputs) if pending else None
