"""MAXLOC and MINLOC: functions for `all_reduce_object` and `reduce_object`.

Each rank passes a pair of a value and its location, which is a rank or an index. Both
are numbers, or arrays of one shape, of NumPy or torch. With arrays, each element has
its own location. The arrays of values have the same dtype on all ranks, and so do the
arrays of locations. The gradients of tensors are ignored.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["maxloc", "minloc"]

Pair: TypeAlias = "tuple[Any, Any]"


def maxloc(one: Pair, other: Pair) -> Pair:
    """Return the larger value with its location; of equal values the lower location.

    A NaN counts as larger than all numbers, as in MAX. The operands do not change.

    Raises:
        ValueError: the arrays have different shapes.
        TypeError: their dtypes differ; values are neither numbers nor arrays.

    Example:
        ```python
        loss, worst = dist.all_reduce_object((loss, dist.get_rank()), dist.maxloc)
        owners = np.full(values.shape, dist.get_rank())
        values, owners = dist.all_reduce_object((values, owners), dist.maxloc)
        ```
    """
    return _pick(one, other, operator.gt)


def minloc(one: Pair, other: Pair) -> Pair:
    """Return the smaller value with its location; of equal values the lower location.

    A NaN counts as smaller than all numbers, as in MIN. The operands do not change.

    Raises:
        ValueError: the arrays have different shapes.
        TypeError: their dtypes differ; values are neither numbers nor arrays.

    Example:
        ```python
        loss, best = dist.all_reduce_object((loss, dist.get_rank()), dist.minloc)
        ```
    """
    return _pick(one, other, operator.lt)


def _pick(one: Pair, other: Pair, is_before: Callable[[Any, Any], Any]) -> Pair:
    value, location = one = _detached(one)
    other_value, other_location = other = _detached(other)
    _check_are_numbers(value, other_value)
    is_array = _check_shapes(*one, *other)
    if is_array:
        _check_dtypes("values", value, other_value)
        _check_dtypes("locations", location, other_location)
    # Only a NaN differs from itself.
    is_nan = other_value != other_value
    is_equal = (other_value == value) | (is_nan & (value != value))
    is_other = (
        is_before(other_value, value)
        | (is_nan & (value == value))
        | (is_equal & (other_location < location))
    )
    if not is_array:
        return other if is_other else one
    picked, origin = copy.deepcopy(value), copy.deepcopy(location)
    picked[is_other], origin[is_other] = other_value[is_other], other_location[is_other]
    return picked, origin


def _detached(pair: Pair) -> Pair:
    """Return `pair` with writable tensors; tensors with gradients are not."""
    value, location = (
        part.detach() if getattr(part, "requires_grad", False) else part
        for part in pair
    )
    return value, location


def _check_are_numbers(*values: Any) -> None:
    """Refuse lists: Python would compare them as a whole."""
    for value in values:
        if hasattr(value, "__len__") and not hasattr(value, "shape"):
            raise TypeError(
                f"maxloc, minloc: values are numbers or arrays, got a "
                f"{type(value).__name__}, which would be compared as a whole: make "
                f"an array of it"
            )


def _check_shapes(*parts: Any) -> bool:
    """Return whether the parts are arrays; refuse different shapes."""
    shapes = [tuple(getattr(part, "shape", ())) for part in parts]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            f"maxloc, minloc: values and locations of all ranks are of one shape, got "
            f"{shapes}"
        )
    return bool(shapes[0])


def _check_dtypes(name: str, one: Any, other: Any) -> None:
    """Refuse arrays if one cannot hold the elements of the other."""
    dtypes = [str(array.dtype) for array in (one, other)]
    if dtypes[0] != dtypes[1]:
        raise TypeError(
            f"maxloc, minloc: {name} of all ranks are of one dtype, got {dtypes[0]} "
            f"and {dtypes[1]}; convert them before"
        )
