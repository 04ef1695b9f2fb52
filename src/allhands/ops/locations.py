"""Functions for `all_reduce_object` and `reduce_object` that keep a location: MAXLOC.

Each rank passes a pair: a value and where it is from, a rank or an index. Both are
numbers, or arrays of one shape, NumPy's or torch's; then each element has a location of
its own. Arrays of values have one dtype on all ranks, and so have those of locations.
Tensors are used without their gradients.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["maxloc", "minloc"]

Pair: TypeAlias = "tuple[Any, Any]"


def maxloc(one: Pair, other: Pair) -> Pair:
    """The larger value with its location; of equal ones the lower location.

    A NaN counts as larger than all numbers, as in MAX. The operands stay as they are.

    Raises:
        ValueError: the arrays are not of one shape.
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
    """The smaller value with its location; of equal ones the lower location.

    A NaN counts as smaller than all numbers, as in MIN. The operands stay as they are.

    Raises:
        ValueError: the arrays are not of one shape.
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
    # A NaN differs from itself, and nothing else does.
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
    """It, whose tensors can be written to: with gradients they cannot."""
    value, location = (
        part.detach() if getattr(part, "requires_grad", False) else part
        for part in pair
    )
    return value, location


def _check_are_numbers(*values: Any) -> None:
    """Refuse a list, which would be compared as a whole."""
    for value in values:
        if hasattr(value, "__len__") and not hasattr(value, "shape"):
            raise TypeError(
                f"maxloc, minloc: values are numbers or arrays, got a "
                f"{type(value).__name__}, which would be compared as a whole: make "
                f"an array of it"
            )


def _check_shapes(*parts: Any) -> bool:
    """Whether they are arrays, of one shape all."""
    shapes = [tuple(getattr(part, "shape", ())) for part in parts]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            f"maxloc, minloc: values and locations of all ranks are of one shape, got "
            f"{shapes}"
        )
    return bool(shapes[0])


def _check_dtypes(name: str, one: Any, other: Any) -> None:
    """Refuse arrays of which one cannot hold the other's elements."""
    dtypes = [str(array.dtype) for array in (one, other)]
    if dtypes[0] != dtypes[1]:
        raise TypeError(
            f"maxloc, minloc: {name} of all ranks are of one dtype, got {dtypes[0]} "
            f"and {dtypes[1]}; convert them before"
        )
