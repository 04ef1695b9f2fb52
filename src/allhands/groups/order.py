"""Do all ranks of the world make the same groups in the same order?

A group that some ranks make as their third and others as their fourth is not the same
group, so `new_group` compares: the rank that comes first to the n-th call leaves in the
world's store what it makes, and who comes later looks. That is one operation on the
store for each rank and call. Nobody waits, and nothing is deleted until the store is.

Where ranks differ,

- a rank that comes later and makes something else raises `CollectiveMismatchError`;
- it leaves a note, so that ranks that come to this call after it raise too;
- ranks that came before it have their groups already. If one of these, or a group they
  make later, is one that a rank which raised was to be in by either call, then that
  rank breaks it, and whoever waits in it or uses it raises the same error.

So nobody waits for a rank that raised. Others are not disturbed, and later calls can
succeed. Where the store cannot compare, or is gone, nothing is checked.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.registry import Backend, BackendConfig, make_communicator
from allhands.errors import CollectiveMismatchError, DistError
from allhands.groups.world import current, default_group
from allhands.store import PrefixStore

__all__ = ["check_order"]


class _Call(NamedTuple):
    """What a rank makes as its n-th group."""

    rank: int
    members: list[int]
    backend: str
    group_desc: str | None

    def __str__(self) -> str:
        more = "" if self.group_desc is None else f", group_desc={self.group_desc!r}"
        if self.backend != default_group().backend:
            more += f", backend={self.backend!r}"
        return f"new_group({self.members}{more})"


def check_order(
    name: str, members: list[int], backend: str, group_desc: str | None
) -> None:
    """Hold that every rank makes this group as the one called `name`, its number.

    Raises:
        CollectiveMismatchError: some rank makes another one; names both calls.
    """
    world = current()
    if not world.has_met:  # the backends in use do not need to know who the ranks are
        return
    token = world.roster().token_for("group order").hex()[:16]
    store = PrefixStore(f"groups/{token}", world.store)
    mine = _Call(default_group().rank(), members, backend, group_desc)
    try:
        found = store.compare_set(name, "", json.dumps([mine]))
    except (NotImplementedError, DistError):
        return
    first, *others = [_Call(*call) for call in json.loads(found)]
    is_same = first[1:] == mine[1:]
    if is_same and not others:
        return
    if not others:
        with suppress(DistError):  # then only those who use the groups will know
            store.set(name, json.dumps([first, mine]))
    other = others[0] if is_same else mine
    text = (
        f"new_group: rank {first.rank}'s call #{name} was {first}, rank {other.rank}'s "
        f"was {other}; every rank of the world makes its groups in the same order, or "
        f"passes use_local_synchronization=True"
    )
    _break_off(mine, text)
    if first.members != mine.members:
        _break_off(first, text)
    world.count_alike(first.members)  # as every rank does for this call
    error = CollectiveMismatchError(text)
    error.ranks = [first.rank if other is mine else other.rank]
    raise error


def _break_off(call: _Call, reason: str) -> None:
    """Break the group of `call`, which this rank was to be in and will not make."""
    world = current()
    rank = default_group().rank()
    served = BackendConfig(call.backend).get_device_backend_map().values()
    if rank not in call.members or not {Backend.NATIVE, Backend.GLOO} & set(served):
        return
    options = CommunicatorOptions(
        store=world.store,
        group_rank=call.members.index(rank),
        group_size=len(call.members),
        timeout=default_group().timeout,
        group_id="of the call that differs",
        global_ranks_in_group=call.members,
        num_alike=world.num_alike(call.members),
        roster=world.roster,
    )
    communicator = make_communicator(Backend.NATIVE, options, None)
    communicator.disagree(reason)
    world.close_with_it(communicator)
