"""The group that callers pass to operations, as one group sees them."""

from __future__ import annotations

import warnings
from typing import TypeAlias

from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import current, resolve

__all__ = ["Group", "member_of", "warn_non_member"]

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
