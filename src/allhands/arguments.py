"""The group and root that callers pass to operations, as one group sees them."""

from __future__ import annotations

import operator
import warnings
from typing import TypeAlias

from allhands.arrays import Array
from allhands.lists import check_list
from allhands.process_group import ProcessGroup
from allhands.world import current, resolve

__all__ = [
    "Group",
    "check_list_of_root",
    "check_root",
    "member_of",
    "root_of",
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


def member_of(group: Group) -> ProcessGroup:
    """The group that is meant, of which this process must be a member.

    Raises:
        ValueError: it is not, or there is no such group.
    """
    member = resolve(group)
    if member is None:
        raise ValueError(
            "Invalid process group specified: this rank is not in it, and only its "
            "members can do this"
        )
    return member


def root_of(group: ProcessGroup, root: int | None, group_root: int | None) -> int:
    """The rank in `group` that is meant by a global or else by a group rank.

    Raises:
        ValueError: both are given or none, or the global rank is not in the group.
        TypeError: it is no int.
    """
    if type(root) is int and group_root is None and group.is_world:
        return root  # as below, in fewer steps: the usual call
    if root is not None:
        if group_root is not None:
            raise ValueError(
                f"Can't specify both group_rank and global_rank: {_EITHER}"
            )
        return group.group_rank(_as_rank(root))
    if group_root is None:
        raise ValueError(f"Must specify global_rank or group_rank: {_EITHER}")
    return _as_rank(group_root)


_EITHER = "pass src or dst, a rank of the world, or else group_src or group_dst"


def _as_rank(value: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"a rank must be an int, got {value!r}") from None


def check_root(
    operation: str,
    group: ProcessGroup,
    root: int | None,
    group_root: int | None,
    default: int | None = None,
) -> int:
    """`root_of`, which must be a rank; that of `default` where neither is given.

    Raises:
        ValueError, TypeError: as `root_of`.
        RuntimeError: there is no such rank.
    """
    if root is None and group_root is None:
        root = default
    rank = root_of(group, root, group_root)
    group.check_root(operation, rank)
    return rank


def check_list_of_root(
    group: ProcessGroup,
    operation: str,
    which: str,
    tensors: list[Array] | None,
    root: int,
) -> list[Array]:
    """The list that only `root` passes; empty elsewhere.

    Raises:
        ValueError: it is missing on `root`, or given elsewhere.
        TypeError: it is not a list.
        RuntimeError: it does not have one entry per rank.
    """
    is_root = group.rank() == root
    if is_root and type(tensors) is list and len(tensors) == group.size():
        return tensors  # the usual call, in fewer steps
    role = "destination" if operation == "gather" else "source"
    if not is_root:
        if tensors:
            raise ValueError(
                f"Argument ``{operation}_list`` must NOT be specified on non-{role} "
                f"ranks; the {role} is group rank {root}, this is {group.rank()}."
            )
        return []
    if tensors is None:
        raise ValueError(
            f"Argument ``{operation}_list`` must be specified on {role} rank."
        )
    check_list(f"{operation}_list", tensors)
    group.check_list(operation, which, tensors)
    return tensors
