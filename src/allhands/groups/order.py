"""Do all ranks of the world make the same groups in the same order?

A group that some ranks make as their third and others as their fourth is not the same
group, so `new_group` compares: the rank that comes first to the n-th call leaves in the
world's store what it makes, and who comes later looks. Where a rank of the same host
has found already that they agree, it looks in memory of the host (`agreed_calls`), else
in the store. So a call costs the store one operation for each host, and some more where
ranks come at once. Nobody waits, and nothing is deleted until the store is.

Where ranks differ,

- a rank that comes later and makes something else raises `CollectiveMismatchError`;
- it leaves a note, so that ranks that come to this call after it raise too, unless
  ranks of their host had found before that they agree, and their call is alike;
- ranks that came before it have their groups already. If one of these, or a group they
  make later, is one that a rank which raised was to be in by either call, then that
  rank breaks it, and whoever waits in it or uses it raises the same error.

So nobody waits for a rank that raised. Others are not disturbed, and later calls can
succeed. Where the store cannot compare, or is gone, nothing is checked.

Some groups are made by a part of the world: `new_subgroups` of a group is for that
group's ranks, the *parent*, who do not count it as a call. The other ranks may call
`new_group` for the same members, as torch.distributed wants them to, or leave it out.
So the parent's ranks first note it in the store. Then a call for these members by a
rank outside the parent counts only where others make it too: where calls differ, that
rank does not count its own, and everyone else passes over it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.config import BackendConfig
from allhands.backends.registry import Backend, is_native, make_communicator
from allhands.errors import CollectiveMismatchError, DistError, DistStoreError
from allhands.groups.agreed_calls import AgreedCalls
from allhands.groups.making import hashed
from allhands.groups.world import current, default_group
from allhands.rendezvous.ranges import in_ranges
from allhands.store import PrefixStore, Store

__all__ = ["name_in_order", "tell_parent"]


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
        return f"new_group({in_ranges(self.members)}{more})"


def name_in_order(
    members: list[int], backend: str, group_desc: str | None
) -> str | None:
    """The name of the group that every rank of the world now makes: its number.

    None where the call does not count, which only happens to a rank outside the group.

    Raises:
        CollectiveMismatchError: some rank makes another one; names both calls.
    """
    world = current()
    if not world.has_met:  # the backends in use do not need to know who the ranks are
        return world.next_name()
    mine = _Call(default_group().rank(), members, backend, group_desc)
    what = json.dumps(mine[1:])
    while True:
        name = world.next_name()
        try:
            agreed = _agreed_calls()
            if agreed.have(int(name), what):
                return name
            store = agreed.store
            found = store.compare_set(name, "", json.dumps([mine]))
        except (NotImplementedError, DistError):
            return name
        first, *others = _calls(name, found)
        if others or first[1:] != mine[1:]:
            if not others and _need_not_count(store, mine):
                world.take_back_name()
                return None
            if not others and _need_not_count(store, first):
                continue
            _disagree(agreed, name, mine, first, others)
        agreed.add(int(name), what)
        return name


def tell_parent(parent: Sequence[int], parts: Sequence[Sequence[int]]) -> None:
    """Let all ranks know that those of `parent` make groups of these members.

    Every rank of `parent` calls it before it makes them.
    """
    if not current().has_met:
        return
    with suppress(NotImplementedError, DistError):
        store = _agreed_calls().store
        for members in parts:
            _tell_parent(store, f"parent/{hashed(sorted(members))}", set(parent))


def _tell_parent(store: Store, key: str, parent: set[int]) -> None:
    """Note the ranks that are in all parents of these members."""
    known = ""
    while True:
        wanted = json.dumps(sorted(parent))
        found = store.compare_set(key, known, wanted).decode()
        if found == wanted:
            return
        known, parent = found, parent & set(json.loads(found))


def _agreed_calls() -> AgreedCalls:
    """Where the calls of this world's ranks are compared, and what is known of them."""
    world = current()
    if world.agreed_calls is None:
        token = world.roster().token_for("group order").hex()[:16]
        store = PrefixStore(f"groups/{token}", world.store)
        world.agreed_calls = AgreedCalls(store, token)
    return world.agreed_calls


def _calls(name: str, text: bytes) -> list[_Call]:
    """What the store has of the call of this name: the first that was made, and others.

    Raises:
        DistStoreError: no rank wrote that.
    """
    try:
        calls = [_Call(*call) for call in json.loads(text)]
        is_right = bool(calls) and all(map(_is_right, calls))
    except (ValueError, TypeError, RecursionError):
        is_right = False
    if not is_right:
        raise DistStoreError(
            f"new_group: what the store has of the ranks' call #{name} is none: "
            f"{text[:80]!r}; no other program may write there"
        )
    return calls


def _is_right(call: _Call) -> bool:
    size = default_group().size()
    return (
        isinstance(call.members, list)
        and all(type(r) is int and 0 <= r < size for r in [call.rank, *call.members])
        and isinstance(call.backend, str)
        and isinstance(call.group_desc, str | None)
    )


def _need_not_count(store: Store, call: _Call) -> bool:
    """Whether the caller is outside a parent of these members."""
    key = f"parent/{hashed(sorted(call.members))}"
    with suppress(NotImplementedError, DistError):
        return store.check([key]) and call.rank not in json.loads(store.get(key))
    return False


def _disagree(
    agreed: AgreedCalls, name: str, mine: _Call, first: _Call, others: list[_Call]
) -> NoReturn:
    """Raise, and see to it that nobody waits for this rank."""
    is_same = first[1:] == mine[1:]
    if not others:
        with suppress(DistError):  # then only those who use the groups will know
            agreed.store.set(name, json.dumps([first, mine]))
    agreed.forget(int(name))
    other = others[0] if is_same else mine
    text = (
        f"new_group: rank {first.rank}'s call #{name} was {first}, rank {other.rank}'s "
        f"was {other}; every rank of the world makes its groups in the same order, or "
        f"passes use_local_synchronization=True"
    )
    _break_off(mine, text)
    if first.members != mine.members:
        _break_off(first, text)
    current().count_alike(first.members)  # as every rank does for this call
    error = CollectiveMismatchError(text)
    error.ranks = [first.rank if other is mine else other.rank]
    raise error


def _break_off(call: _Call, reason: str) -> None:
    """Break the group of `call`, which this rank was to be in and will not make."""
    world = current()
    rank = default_group().rank()
    served = BackendConfig(call.backend).get_device_backend_map().values()
    if rank not in call.members or not any(map(is_native, served)):
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
