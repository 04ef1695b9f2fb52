"""Groups of this package's world for torch.distributed: one world, two APIs.

torch keeps tables of its groups: which is the default one, what each is called, whose
ranks are in it. A group of ours is entered there, the group of all ranks first, as
torch's default. Nothing is sent, and no second communicator is made: operations of both
APIs are carried out by one, in the order in which the program makes them.

Making and ending them is for one thread at a time, as for our groups.
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
from allhands.groups.world import World, current, default_group, is_process_wide
from allhands.store import PrefixStore
from allhands.store.lent_store import LentStore
from allhands.torch.identity import NAME
from allhands.torch.native_group import AllhandsProcessGroup
from allhands.torch.profiled import ProfiledCommunicator
from allhands.torch.uncompiled import uncompiled

__all__ = ["process_group"]


@uncompiled
class LentProcessGroup(AllhandsProcessGroup):
    """A group of this package's as torch takes it; `process_group` makes these.

    It ends with the group that it lends, and leaves that as it is when torch ends it.

    Args:
        group: whose operations it carries out.
        store: what torch makes further groups with.
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
        # Within `profiler_events` the group's own communicator makes them.
        if profiler._is_profiler_enabled and current().around is None:
            return ProfiledCommunicator(self.lent.communicator, self.getBackendName())
        return self.lent.communicator

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations that are given none, in both APIs."""
        super().set_timeout(timeout)
        self.lent.set_timeout(timeout)

    def _meet(self) -> None:
        """Nothing to do: the members have met."""

    def abort(self) -> None:
        """Break the group for every member, in both APIs."""
        self.lent.abort()

    def end(self, grace: float, failure: tuple[str, str] | None = None) -> None:
        """Give the group back; it goes on to serve the functions of `allhands`."""
        self._is_closed = True


def process_group(group: Group = None) -> Any:
    """`group` as a process group of torch's: for DDP, DTensor, torch's functions.

    Both APIs use one communicator: a call of either counts as one of the group's, and
    ranks agree on the order of all of them. Nothing is sent, so only members of `group`
    need to call it. Called again it returns the same object.

    The first call makes the group of all ranks torch's default group: from then on
    `torch.distributed.is_initialized()` is true, and its functions, `DeviceMesh`,
    `DTensor` and `DistributedSampler` work without more. Groups that torch makes by
    itself (`new_group`, meshes of several dimensions) have engines of their own, and
    meet through the world's store.

    `allhands.destroy_process_group` ends what it lent, and with the world all of
    torch's groups. `torch.distributed.destroy_process_group` ends torch's groups; the
    world stays, and this function lends its groups again.

    Args:
        group: by default the group of all ranks.

    Returns:
        A `torch.distributed.ProcessGroup`; on ranks outside of `group` torch's
        `GroupMember.NON_GROUP_MEMBER`.

    Raises:
        RuntimeError: torch has a world of its own, or this thread's world is not that
            of the process.
        ValueError: no world, no such group, or a merged one.

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
            allhands_torch.register()  # torch loads no entry points
        name = c10d._process_group_name([], use_hashed_name=False)
        c10d._update_default_pg(_lend(whole, LentStore(world.store), name))
    if member is OUTSIDER:
        return c10d.GroupMember.NON_GROUP_MEMBER
    return _lent_for(member) or _lend_part(member, world)


def _check_world(world: World, whole: ProcessGroup) -> None:
    if not is_process_wide(world):
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
    """What torch has of `group`."""
    for theirs in c10d._world.pg_map:
        if isinstance(theirs, LentProcessGroup) and theirs.lent is group:
            return theirs
    return None


def _lend(group: ProcessGroup, store: LentStore, name: str) -> LentProcessGroup:
    """Enter `group` in torch's tables."""
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
    """Strike `group` from torch's tables; with the world, all that is there."""
    lent = _lent_for(group)
    if lent is None:
        return
    with ExitStack() as ends:  # the tables come last, whatever the groups raise
        ends.callback(torch.distributed.destroy_process_group, lent)
        if lent is c10d.GroupMember.WORLD:
            for theirs in c10d._world.pg_map:
                if isinstance(theirs, AllhandsProcessGroup):
                    ends.callback(theirs.shutdown)
