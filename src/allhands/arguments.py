"""What callers pass to operations: a group, a root, a list per rank, split sizes.

Each function turns an argument into what a group or a communicator takes, or says what
is wrong with it. No state, no communication.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TypeAlias

from allhands.arrays import Array
from allhands.process_group import ProcessGroup
from allhands.world import current

__all__ = [
    "Group",
    "check_list",
    "check_one_root",
    "root_of",
    "split_sizes",
    "warn_non_member",
]

Group: TypeAlias = "ProcessGroup | int | None"


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


def check_one_root(
    operation: str, group: ProcessGroup, root: int | None, group_root: int | None
) -> int:
    """`root_of`, which must be a rank; global rank 0 where neither is given.

    Raises:
        ValueError: as `root_of`.
        RuntimeError: there is no such rank.
    """
    if root is None and group_root is None:
        root = 0
    rank = root_of(group, root, group_root)
    group.check_root(operation, rank)
    return rank


def split_sizes(
    name: str, array: Array, sizes: Sequence[int] | None, num_ranks: int
) -> list[int]:
    """How many rows of `array` go to or come from each rank; even where not given.

    Raises:
        RuntimeError: they are not one per rank, or do not make up all rows; or none are
            given and the rows cannot be shared evenly.
    """
    if not array.shape:
        raise RuntimeError(f"{name} has no dimensions, so it cannot be split in rows")
    rows = int(array.shape[0])
    if sizes is None or not len(sizes):
        if rows % num_ranks:
            raise RuntimeError(
                f"{name}: dim 0 of size {rows} does not divide equally across "
                f"{num_ranks} ranks; pass {name}_split_sizes"
            )
        return [rows // num_ranks] * num_ranks
    splits = [int(size) for size in sizes]
    if len(splits) != num_ranks:
        raise RuntimeError(
            f"{name}: number of tensor splits not equal to group size: expected "
            f"{num_ranks}, got {len(splits)}"
        )
    if sum(splits) != rows or min(splits) < 0:
        raise RuntimeError(
            f"{name}: split sizes doesn't match total dim 0 size: {splits} for {rows} "
            f"rows"
        )
    return splits
