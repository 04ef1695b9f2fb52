"""Lends groups of this package's world to torch.distributed: one world, two APIs.

torch keeps tables of its groups: the default group, the names, and the ranks. This
module enters groups of this package there; the group of all ranks comes first, as
torch's default. It sends no message and makes no second communicator. One communicator
carries out the operations of both APIs, in the order in which the program issues them.

As for other groups, only one thread at a time may make and end them.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed
from torch.autograd import profiler
from torch.distributed import distributed_c10d as c10d

import allhands_torch
from allhands.backends.communicator import Communicator
from allhands.groups.arguments import Group, resolve
from allhands.groups.making import check_of_world
from allhands.groups.outsider import OUTSIDER
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import World, current, default_group
from allhands.store import PrefixStore
from allhands.store.lent_store import LentStore
from allhands.torch.identity import NAME
from allhands.torch.native_group import AllhandsProcessGroup
from allhands.torch.profiled import ProfiledCommunicator
from allhands.torch.uncompiled import uncompiled

__all__ = ["process_group"]


@uncompiled
class LentProcessGroup(AllhandsProcessGroup):
    """A group of this package in torch's form; `process_group` makes these.

    It ends with the group that it lends. If torch ends it, that group stays.

    Args:
        group: the group whose operations it carries out.
        store: the store with which torch makes further groups.
    """

    def __init__(self, group: ProcessGroup, store: LentStore) -> None:
        super().__init__(
            store, group.rank(), group.size(), group.timeout, group.reduce_order
        )
        self.lent = group
        self._is_closed = False

    @property
    def _communicator(self) -> Communicator:
        if self._is_closed:
            raise RuntimeError(
                f"group {self._group_name!r} was destroyed; where "
                f"allhands.is_initialized(), allhands.torch.process_group() lends a "
                f"group again"
            )
        # Within `profiler_events`, the group's own communicator makes the events.
        if profiler._is_profiler_enabled and current().around is None:
            return ProfiledCommunicator(self.lent.communicator, self.getBackendName())
        return self.lent.communicator

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the limit of later operations without their own limit, in both APIs."""
        super().set_timeout(timeout)
        self.lent.set_timeout(timeout)

    def _meet(self) -> None:
        """Do nothing: the members have met."""

    def abort(self) -> None:
        """Break the group for every member, in both APIs."""
        self.lent.abort()

    def end(self, grace: float, failure: tuple[str, str] | None = None) -> None:
        """Give the group back; it still serves the functions of `allhands`."""
        self._is_closed = True


def process_group(group: Group = None) -> Any:
    """Return `group` as a process group of torch, for DDP, DTensor and functions.

    Both APIs use one communicator: calls of both count as calls on the group, and the
    ranks must agree on the order of all of them. The call sends nothing, so only
    members of `group` need to make it. Called again, it returns the same object.

    The first call makes the group of all ranks torch's default group. From then on
    `torch.distributed.is_initialized()` is True, and torch's functions, `DeviceMesh`,
    `DTensor` and `DistributedSampler` work without further calls. Groups that torch
    makes itself (`new_group`, meshes of several dimensions) have their own engines, and
    meet through the world's store.

    `allhands.destroy_process_group` ends the lent group, and with the world all of
    torch's groups. `torch.distributed.destroy_process_group` ends torch's groups. The
    world stays, and this function can lend its groups again.

    Args:
        group: by default the group of all ranks.

    Returns:
        A `torch.distributed.ProcessGroup`; on ranks outside of `group`, torch's
        `GroupMember.NON_GROUP_MEMBER`.

    Raises:
        RuntimeError: torch has its own world, or this thread's world is not that of the
            process.
        ValueError: there is no world or no such group, or it is a merged group.

    Example:
        ```python
        dist.init_process_group()
        pair = dist.new_group([0, 1])
        mesh = DeviceMesh.from_group(dist.torch.process_group(pair), "cpu")
        ```
    """
    member = resolve(group)
    world = current()
    whole = default_group()
    _check_world(world, whole)
    if not torch.distributed.is_initialized():
        if not hasattr(torch.distributed.Backend, NAME.upper()):
            allhands_torch.register()  # torch loads no entry points here
        name = c10d._process_group_name([], use_hashed_name=False)
        c10d._update_default_pg(_lend(whole, LentStore(world.store), name))
    if member is OUTSIDER:
        return c10d.GroupMember.NON_GROUP_MEMBER
    return _lent_for(member) or _lend_part(member, world)


def _check_world(world: World, whole: ProcessGroup) -> None:
    if not world.is_process_wide:
        raise RuntimeError(
            "torch.distributed has one world per process; the world of this thread, "
            "which is not the process's, cannot be lent to it"
        )
    theirs = c10d.GroupMember.WORLD
    if theirs is None or getattr(theirs, "lent", None) is whole:
        return
    raise RuntimeError(
        f"torch.distributed has a world of its own already (backend "
        f"{torch.distributed.get_backend()!r}, {theirs.size()} ranks): a program calls "
        f"either allhands.init_process_group() and allhands.torch.process_group(), or "
        f"torch.distributed.init_process_group('allhands'); to change over, call "
        f"torch.distributed.destroy_process_group() first"
    )


def _lend_part(group: ProcessGroup, world: World) -> LentProcessGroup:
    check_of_world("process_group", group)
    name = f"{NAME}:{group.group_name}"
    return _lend(group, LentStore(PrefixStore(name, world.store)), name)


def _lent_for(group: ProcessGroup) -> LentProcessGroup | None:
    """Return torch's object for `group`, or None."""
    for theirs in c10d._world.pg_map:
        if isinstance(theirs, LentProcessGroup) and theirs.lent is group:
            return theirs
    return None


def _lend(group: ProcessGroup, store: LentStore, name: str) -> LentProcessGroup:
    """Enter `group` into torch's tables."""
    lent = LentProcessGroup(group, store)
    lent._set_group_name(name)
    lent._set_group_desc(group.group_desc)
    c10d._register_pg_in_world(
        lent,
        backend_name=c10d.Backend(NAME),
        store=store,
        group_name=name,
        backend_config=str(c10d.BackendConfig(c10d.Backend(NAME))),
        rank_mapping={rank: i for i, rank in enumerate(group.global_ranks)},
        add_to_default_tag=True,
    )
    current().before_end_of(group, partial(_take_back, group))
    return lent


def _take_back(group: ProcessGroup) -> None:
    """Remove `group` from torch's tables; with the world, all groups there."""
    lent = _lent_for(group)
    if lent is None:
        return
    with ExitStack() as ends:  # the tables come last, whatever the groups raise
        ends.callback(torch.distributed.destroy_process_group, lent)
        if lent is c10d.GroupMember.WORLD:
            for theirs in c10d._world.pg_map:
                if isinstance(theirs, AllhandsProcessGroup):
                    ends.callback(theirs.shutdown)
