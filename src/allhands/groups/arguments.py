"""Resolves the `group=` argument of the package's functions."""

from __future__ import annotations

from typing import TypeAlias

from allhands.backends.communicator import Communicator
from allhands.backends.frames import called_operation
from allhands.groups.outsider import OUTSIDER, warn_outsider
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import NON_GROUP_MEMBER, default_group, scope

__all__ = [
    "Group",
    "carrier_and_root",
    "carrier_of",
    "is_outside",
    "member_of",
    "resolve",
]

Group: TypeAlias = "ProcessGroup | int | None"

_now = scope.get  # bound once, which saves each call 40 ns


def carrier_of(group: Group) -> Communicator:
    """Return the object that runs operations on `group`, usually its communicator.

    Within a `_coalescing_manager` block of this thread on the group, this is the object
    that collects the operations of the block. On a rank outside the group, it is an
    object that warns.

    Raises:
        ValueError: there is no world or no such group, or it was destroyed.
    """
    here = _now()
    # The same as resolve(), in fewer steps: every collective passes here.
    meant = here.world.default if group is None else resolve(group)
    member = meant or default_group()
    if here.blocks is None:
        return member.communicator
    return here.blocks.get(member, member.communicator)


def carrier_and_root(
    group: Group, rank: int | None, group_rank: int | None, default: int | None = None
) -> tuple[Communicator, int]:
    """Return `carrier_of(group)` and the group rank of the operation's root.

    Raises:
        ValueError: see `carrier_of` and `ProcessGroup.rank_meant`.
        TypeError: see `ProcessGroup.rank_meant`.
    """
    here = _now()
    meant = here.world.default if group is None else resolve(group)
    member = meant or default_group()
    # The same as rank_meant() for the usual arguments.
    if type(rank) is int and group_rank is None and member.is_world:
        root = rank
    else:
        root = member.rank_meant(rank, group_rank, default)
    if here.blocks is None:
        return member.communicator, root
    return here.blocks.get(member, member.communicator), root


def resolve(group: Group) -> ProcessGroup:
    """Return the group that `group` names; `OUTSIDER` if this rank is not in it.

    Raises:
        ValueError: there is no world or no such group, or it was destroyed.
    """
    if group is None:
        return _now().world.default or default_group()
    if isinstance(group, ProcessGroup):
        if _now().world.groups.get(group.group_name) is group or group is OUTSIDER:
            return group
    elif isinstance(group, int) and group == NON_GROUP_MEMBER:
        return OUTSIDER
    raise ValueError(
        f"{called_operation()}: Group {group} is not registered, please create group "
        f"with allhands.new_group API"
    )


def member_of(group: Group) -> ProcessGroup:
    """Return the group that `group` names; this process must be a member.

    Raises:
        ValueError: this process is not a member, or there is no such group.
    """
    member = resolve(group)
    if member is OUTSIDER:
        raise ValueError(
            f"{called_operation()}: Invalid process group specified: this rank is not "
            f"in it, and only its members can do this"
        )
    return member


def is_outside(member: ProcessGroup, operation: str) -> bool:
    """Return whether this rank is outside the resolved group; if so, warn."""
    if member is not OUTSIDER:
        return False
    warn_outsider(operation, stacklevel=4)
    return True
