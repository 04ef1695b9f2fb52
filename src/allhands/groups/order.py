"""Checks that all ranks of the world make the same groups in the same order.

If some ranks make a group as their third and others as their fourth, it is not the same
group. So `new_group` compares the calls. The rank that comes first to the n-th call
writes its call to the world's store, and ranks that come later compare. If a rank of
the same host has already found that the ranks agree, a later rank reads this in memory
of the host (`agreed_calls`); otherwise it asks the store. So a call costs the store one
operation per host, and a few more if ranks come at the same time. No rank waits, and
nothing is deleted before the store is.

If ranks differ:

- A rank that comes later and makes another group raises `CollectiveMismatchError`.
- This rank leaves a note, so that ranks that come to this call after it raise the
  error, too. Ranks of a host that has noted before that the ranks agree do not, if
  their call is the same.
- Ranks that came before it already have their groups. If one of these groups, or a
  group that they make later, should contain a rank that raised by either of the two
  calls, then that rank breaks the group. Any rank that waits in the group or uses it
  raises the same error.

So no rank waits for a rank that raised. Other groups are not affected, and later calls
can succeed. If the store cannot compare values, or is gone, there is no check.

Some groups are made by a part of the world: only the ranks of a group, the *parent*,
have to call `new_subgroups` of this group, and for them it does not count as a call.
The other ranks may call `new_group` for the same members, as torch.distributed
requires, or leave it out. So the parent's ranks first note the members in the store.
Then a call for these members by a rank outside the parent counts only if other ranks
make it, too. If calls differ, that rank does not count its own call, and all others
skip it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, NoReturn

from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.config import BackendConfig
from allhands.backends.gathering import refuse
from allhands.backends.registry import Backend, engine_of, make_communicator
from allhands.errors import CollectiveMismatchError, DistError, DistStoreError
from allhands.groups.agreed_calls import AgreedCalls
from allhands.groups.making import hashed
from allhands.groups.world import current, default_group
from allhands.rendezvous.ranges import in_ranges
from allhands.store import PrefixStore, Store

__all__ = ["name_in_order", "tell_parent"]

_MET_IN_THE_STORE = (Backend.GLOO, Backend.MPI, Backend.NCCL, Backend.XCCL)
"""The backends whose members wait for each other in the world's store."""


class _Call(NamedTuple):
    """The call of a rank for its n-th group."""

    rank: int
    members: list[int]
    backend: str
    """Empty if it is that of the world."""
    group_desc: str | None

    def __str__(self) -> str:
        more = "" if self.group_desc is None else f", group_desc={self.group_desc!r}"
        if self.backend:
            more += f", backend={self.backend!r}"
        return f"new_group({in_ranges(self.members)}{more})"


def name_in_order(
    members: list[int], backend: str, group_desc: str | None
) -> str | None:
    """Return the name of the group that every rank of the world now makes: its number.

    `backend` is in the form of `asked_for`, empty if it is that of the world.

    Returns None if the call does not count, which only happens outside the group.

    Raises:
        CollectiveMismatchError: another rank makes another group; the message names
            both calls.
    """
    world = current()
    if not world.has_met:  # these backends need not know the ranks
        return world.numbers.next_name()
    mine = _Call(default_group().rank(), members, backend, group_desc)
    what = json.dumps(mine[1:])
    while True:
        name = world.numbers.next_name()
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
                world.numbers.take_back_name()
                return None
            if not others and _need_not_count(store, first):
                continue
            _disagree(agreed, name, mine, first, others)
        agreed.add(int(name), what)
        return name


def tell_parent(parent: Sequence[int], parts: Sequence[Sequence[int]]) -> None:
    """Note in the store that the ranks of `parent` make groups of these members.

    Every rank of `parent` calls this before it makes them.
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
    """Return this world's known results, with the store that compares its calls."""
    world = current()
    if world.agreed_calls is None:
        token = world.roster().token_for("group order").hex()[:16]
        store = PrefixStore(f"groups/{token}", world.store)
        world.agreed_calls = AgreedCalls(store, token)
    return world.agreed_calls


def _calls(name: str, text: bytes) -> list[_Call]:
    """Parse the store's value for the call of this name: the first call, and others.

    Raises:
        DistStoreError: no rank wrote this value.
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
    """Return whether the caller is outside a parent of these members."""
    key = f"parent/{hashed(sorted(call.members))}"
    with suppress(NotImplementedError, DistError):
        return store.check([key]) and call.rank not in json.loads(store.get(key))
    return False


def _disagree(
    agreed: AgreedCalls, name: str, mine: _Call, first: _Call, others: list[_Call]
) -> NoReturn:
    """Raise an error, and make sure that no rank waits for this rank."""
    is_same = first[1:] == mine[1:]
    if not others:
        with suppress(DistError):  # then only ranks that use the groups learn of it
            agreed.store.set(name, json.dumps([first, mine]))
    agreed.forget(int(name))
    other = others[0] if is_same else mine
    text = (
        f"new_group: rank {first.rank}'s call #{name} was {first}, rank {other.rank}'s "
        f"was {other}; every rank of the world makes its groups in the same order, or "
        f"passes use_local_synchronization=True"
    )
    _break_off(name, mine, text)
    if (first.members, first.backend) != (mine.members, mine.backend):
        _break_off(name, first, text)
    current().numbers.count_alike(first.members)  # as every rank does for this call
    error = CollectiveMismatchError(text)
    error.ranks = [first.rank if other is mine else other.rank]
    raise error


def _break_off(name: str, call: _Call, reason: str) -> None:
    """Break the group of `call`: this rank belongs to it but will not make it."""
    world = current()
    rank = default_group().rank()
    if rank not in call.members:
        return
    options = CommunicatorOptions(
        store=PrefixStore(f"{name}/", world.store),
        group_rank=call.members.index(rank),
        group_size=len(call.members),
        timeout=default_group().timeout,
        group_id="of the call that differs",
        global_ranks_in_group=call.members,
        num_alike=world.numbers.num_alike(call.members),
        roster=world.roster,
    )
    backend = call.backend or default_group().backend
    for engine, device in _engines_of(backend).items():
        if engine == Backend.NATIVE:
            communicator = make_communicator(engine, options, None)
            communicator.disagree(reason)
            world.close_with_it(communicator)
        elif engine in _MET_IN_THE_STORE:
            own = PrefixStore(f"{device}/", options.store)
            with suppress(DistError):
                refuse(engine, replace(options, store=own), reason)


def _engines_of(backend: str) -> dict[str, str]:
    """Return each engine of a group of `backend`, with the first device it serves.

    There is none if only other ranks have registered the backend.
    """
    engines: dict[str, str] = {}
    with suppress(AssertionError, RuntimeError, ValueError):
        devices = BackendConfig(backend).get_device_backend_map()
        for device, name in sorted(devices.items()):
            engines.setdefault(engine_of(name), device)
    return engines
