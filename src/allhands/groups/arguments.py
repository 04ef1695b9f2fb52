"""The `group=` argument of the package's functions: what carries the call."""

from __future__ import annotations

from typing import TypeAlias

from allhands.backends.communicator import Communicator
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

_now = scope.get  # bound once, which spares each call 40 ns


def carrier_of(group: Group) -> Communicator:
    """What an operation on `group` is handed to: its communicator, as a rule.

    Within a `_coalescing_manager` block of this thread on that group, what collects the
    operations of the block; on a rank outside the group, what warns.

    Raises:
        ValueError: no world, no such group, or it was destroyed.
    """
    here = _now()
    # As resolve(), in fewer steps: every collective passes here.
    meant = here.world.default if group is None else resolve(group)
    member = meant or default_group()
    if here.blocks is None:
        return member.communicator
    return here.blocks.get(member, member.communicator)


def carrier_and_root(
    group: Group, rank: int | None, group_rank: int | None, default: int | None = None
) -> tuple[Communicator, int]:
    """`carrier_of(group)`, and the rank there that is meant as the operation's root.

    Raises:
        ValueError: as `carrier_of`, or as `ProcessGroup.rank_meant`.
        TypeError: as `ProcessGroup.rank_meant`.
    """
    here = _now()
    meant = here.world.default if group is None else resolve(group)
    member = meant or default_group()
    # As rank_meant(), where that is but a look.
    if type(rank) is int and group_rank is None and member.is_world:
        root = rank
    else:
        root = member.rank_meant(rank, group_rank, default)
    if here.blocks is None:
        return member.communicator, root
    return here.blocks.get(member, member.communicator), root


def resolve(group: Group) -> ProcessGroup:
    """The group that is meant; `OUTSIDER` where this rank is not in it.

    Raises:
        ValueError: no world, no such group, or it was destroyed.
    """
    if group is None:
        return _now().world.default or default_group()
    if isinstance(group, ProcessGroup):
        if _now().world.groups.get(group.group_name) is group or group is OUTSIDER:
            return group
    elif group == NON_GROUP_MEMBER:
        return OUTSIDER
    raise ValueError(
        f"Group {group} is not registered, please create group with "
        f"allhands.new_group API"
    )


def member_of(group: Group) -> ProcessGroup:
    """The group that is meant, of which this process must be a member.

    Raises:
        ValueError: it is not, or there is no such group.
    """
    member = resolve(group)
    if member is OUTSIDER:
        raise ValueError(
            "Invalid process group specified: this rank is not in it, and only its "
            "members can do this"
        )
    return member


def is_outside(member: ProcessGroup, operation: str) -> bool:
    """Whether this rank is not in the group that was resolved; then it warns."""
    if member is not OUTSIDER:
        return False
    warn_outsider(operation, stacklevel=4)
    return True
