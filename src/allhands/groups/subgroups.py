"""Several groups at once, and groups from groups: split and shrink.

Like `new_group`, these functions send no message, except `split_group_by_color`. A dead
rank does not affect ranks that make groups without it. Only one thread at a time may
call them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence, Sized
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np

from allhands.backends.frames import called_operation
from allhands.errors import DistError
from allhands.groups.arguments import member_of
from allhands.groups.lifetime import destroy_process_group, make_group
from allhands.groups.making import (
    check_members,
    check_of_world,
    derive,
    make_world,
    restricted,
    split,
)
from allhands.groups.order import tell_parent
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import NON_GROUP_MEMBER, current, default_group
from allhands.rendezvous.roster import Roster
from allhands.store import PrefixStore

__all__ = [
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "shrink_group",
    "split_group",
    "split_group_by_color",
]

Groups: TypeAlias = "list[ProcessGroup | int]"

_SHRINK_ABORT = 1


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | None, Groups]:
    """Divide `group` into subgroups of `group_size` consecutive ranks each.

    Every rank of `group` calls it. Ranks of the world outside `group` need not do
    anything. They may call `new_group` for each of the subgroups, as torch.distributed
    requires; then all of them have to. Without `group_size` the ranks of each host form
    one subgroup. The other arguments are those of `new_group`.

    Returns:
        The subgroup that this rank is in, and a list of all subgroups. In the list,
        `GroupMember.NON_GROUP_MEMBER` stands for a subgroup that this rank is not in.

    Raises:
        ValueError: `group_size` is not positive or does not divide the group's size.

    Example:
        ```python
        pair, _ = dist.new_subgroups(2)  # ranks 0 and 1, ranks 2 and 3, ...
        dist.all_reduce(array, group=pair)
        ```
    """
    parent = member_of(group)
    check_of_world("new_subgroups", parent)
    ranks = list(parent.global_ranks)
    if group_size is None:
        parts = _by_host(ranks)
    else:
        _check_group_size(group_size, len(ranks))
        starts = range(0, len(ranks), group_size)
        parts = [ranks[start : start + group_size] for start in starts]
    if not parent.is_world:
        tell_parent(ranks, parts)
    return _make_all(parts, parent, timeout, backend, pg_options, group_desc=group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | None, Groups]:
    """Make a subgroup from each list of global ranks; the lists must not overlap.

    Every rank of the world calls it. The other arguments are those of `new_group`.

    Returns:
        The subgroup that this rank is in, or None if there is none, and a list of all
        subgroups. In the list, `GroupMember.NON_GROUP_MEMBER` stands for a subgroup
        that this rank is not in.

    Raises:
        ValueError: there is no list, or one is empty; a rank is given twice or is out
            of range. Then no group was made.

    Example:
        ```python
        mine, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        ```
    """
    parts = ranks_per_subgroup_list
    if not parts:
        raise ValueError(
            "new_subgroups_by_enumeration: The arg 'ranks_per_subgroup_list' cannot be "
            "empty"
        )
    whole = default_group()
    _check_apart(parts, whole.size())
    return _make_all(parts, whole, timeout, backend, pg_options, group_desc=group_desc)


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Divide `parent_pg` into groups of the given ranks of `parent_pg`.

    Every rank of the parent calls it with the same lists, which must not overlap and
    need not hold every rank. The parent does not change. With backend nccl, NCCL
    divides a group that it has connected: then each rank waits for all others.

    Args:
        parent_pg: the group to divide; by default the group of all ranks.
        split_ranks: for each new group, its ranks in the parent.
        timeout: limit of operations; by default the parent's.
        pg_options: options for the backend.
        group_desc: free text; by default made from the parent's.
        backend: some of the parent's "device:backend" pairs, to serve only those.

    Returns:
        The new group that this rank is in; None if there is none.

    Raises:
        ValueError: there is no list, or one is empty; a rank is given twice or is out
            of range; `backend` is not part of the parent's.
        DistBackendError: NCCL could not divide the group.

    Example:
        ```python
        half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
        ```
    """
    parent = member_of(parent_pg)
    if not split_ranks:
        raise ValueError("split_group: split_ranks cannot be None or empty")
    _check_apart(split_ranks, parent.size())
    restricted(parent, backend)
    parts = [sorted(ranks) for ranks in split_ranks]
    divided = parent.communicator.divide(parts, pg_options)
    rest = timeout, pg_options, None, group_desc, backend, True, divided
    groups = [split(parent, ranks, *rest) for ranks in split_ranks]
    return next((group for group in groups if group is not None), None)


def split_group_by_color(
    color: int | None,
    key: int = 0,
    parent_pg: ProcessGroup | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Divide `parent_pg` into a group for each `color`: MPI's `Comm_split`.

    Every rank of the parent calls it with a color of its own choice. Ranks with the
    same color form one group. Unlike with `split_group`, no rank needs to know the
    choices of the others: the ranks exchange them, so the call waits for all ranks. The
    parent does not change.

    Args:
        color: the group that this rank joins: any int, or None for no group.
        key: the ranks of the new group are sorted by these ints; equal ints keep the
            parent's order.
        parent_pg: the group to divide; by default the group of all ranks.
        timeout: limit of operations, and of the wait in this call; by default the
            parent's.
        pg_options: options for the backend.
        group_desc: free text; by default made from the parent's.
        backend: some of the parent's "device:backend" pairs, to serve only those.

    Returns:
        The new group that this rank is in; None if its color is None.

    Raises:
        TypeError: `color` or `key` is not an int.
        ValueError: `color` or `key` is not in [-2**63, 2**63); `backend` is not part of
            the parent's; this rank is not in the parent.
        CollectiveTimeoutError, RankFailedError: as for every collective.

    Example:
        ```python
        rows = dist.split_group_by_color(dist.get_rank() // 4)
        from_last = dist.split_group_by_color(0, key=-dist.get_rank())
        ```
    """
    parent = member_of(parent_pg)
    own_color = _int64("color", 0 if color is None else color)
    choice = np.array([own_color, _int64("key", key), color is None])
    # for a backend that transfers nothing
    choices = np.tile(choice, (parent.size(), 1))
    with current().carrying_out(parent.group_name, "split_group_by_color"):
        parent.communicator.all_gather_single(choices, choice, timeout, False)
    parts: dict[int, list[int]] = {}
    for rank, (its_color, _, is_out) in enumerate(choices.tolist()):
        if not is_out:
            parts.setdefault(its_color, []).append(rank)
    for ranks in parts.values():
        ranks.sort(key=lambda rank: int(choices[rank, 1]))
    restricted(parent, backend)
    divided = parent.communicator.divide(list(parts.values()), pg_options)
    if color is None:
        return None
    rest = timeout, pg_options, None, group_desc, backend, False, divided
    return split(parent, parts[own_color], *rest)


def shrink_group(
    ranks_to_exclude: list[int],
    group: ProcessGroup | None = None,
    shrink_flags: int = 0,
    pg_options: Any = None,
) -> ProcessGroup:
    """Continue without some ranks: a new group of the others replaces `group`.

    Only the ranks that stay call it, all with the same `ranks_to_exclude`, which are
    ranks of `group`. The call works on a broken group, and needs neither the excluded
    ranks nor the store. So a program can use it after a `RankFailedError`. The call
    destroys `group` on this rank. If `group` is the group of all ranks, the call also
    destroys every other group, the new group becomes the group of all ranks, and ranks
    get new numbers.

    Args:
        ranks_to_exclude: ranks of `group` that the new group leaves out.
        group: by default the group of all ranks.
        shrink_flags: with 1, running operations of `group` end with an error on all of
            its ranks; with 0, the call first finishes operations that are queued on
            this rank.
        pg_options: options for the backend.

    Returns:
        The new group; its ranks are in the order of the old ones.

    Raises:
        ValueError: no rank or every rank is excluded, or a rank is given twice or is
            out of range.
        RuntimeError: this rank is among the excluded ranks.

    Example:
        ```python
        try:
            dist.all_reduce(array)
        except dist.RankFailedError as error:
            dist.shrink_group(error.ranks)
        ```
    """
    old = member_of(group)
    kept = _survivors(old, ranks_to_exclude)
    if shrink_flags & _SHRINK_ABORT:
        old.abort("shrink_group() was called with the abort flag")
    if old.is_world:
        return _shrink_world(old, kept, pg_options)
    with suppress(DistError):  # messages to an excluded rank may be lost
        destroy_process_group(old)
    return derive(
        old,
        kept,
        timeout=old.timeout,
        backend=old.backend,
        pg_options=pg_options,
        group_desc=old.group_desc,
    )


def _shrink_world(old: ProcessGroup, kept: list[int], pg_options: Any) -> ProcessGroup:
    """Make the World of the ranks `kept`, which keep their order and get new numbers.

    Its roster comes from the old one. The processes of the ranks are known, and only
    the same step from the same world gives the same token.
    """
    world = current()
    roster, store = world.roster(), world.store
    with suppress(DistError):  # messages to an excluded rank may be lost
        world.destroy(keeps_port=True)
    token = roster.token_for("survivors", kept)
    identities = [roster.identities[rank] for rank in kept]
    remaining = Roster(identities, token, roster.port)
    return make_world(
        PrefixStore(f"survivors/{token.hex()[:16]}", store),
        lambda: remaining,
        rank=kept.index(old.rank()),
        size=len(kept),
        name="0",
        timeout=old.timeout,
        backend=old.backend,
        pg_options=pg_options,
        device_id=old.bound_device_id,
        parent=old,
    )


def _survivors(group: ProcessGroup, excluded: list[int]) -> list[int]:
    """Return the ranks of `group` that stay."""
    if isinstance(excluded, Sized) and not len(excluded):
        raise ValueError(
            "ranks_to_exclude cannot be empty. To shrink a group, you must specify at "
            "least one rank to exclude. Example: [failed_rank_id]"
        )
    out = check_members(excluded, group.size(), sort=True)
    kept = [rank for rank in range(group.size()) if rank not in out]
    if not kept:
        raise ValueError(
            f"ranks_to_exclude {out} are all {group.size()} ranks of the group; at "
            f"least one must stay"
        )
    if group.rank() in out:
        raise RuntimeError(
            f"shrink_group: rank {group.rank()} (this process) is among the excluded "
            f"ranks {out}; only ranks that stay may call it"
        )
    return kept


def _by_host(ranks: list[int]) -> list[list[int]]:
    identities = current().roster().identities
    hosts: dict[str, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(identities[rank].host, []).append(rank)
    return list(hosts.values())


def _check_group_size(group_size: int, num_ranks: int) -> None:
    if group_size <= 0:
        raise ValueError(
            f"new_subgroups: The arg 'group_size' ({group_size}) must be positive"
        )
    if group_size > num_ranks:
        raise ValueError(
            f"new_subgroups: The arg 'group_size' ({group_size}) must not exceed the "
            f"world size ({num_ranks})"
        )
    if num_ranks % group_size:
        raise ValueError(
            f"new_subgroups: The world size ({num_ranks}) must be divisible by "
            f"'{group_size=}'"
        )


def _int64(name: str, value: int) -> int:
    """Return the value as an int of 64 bits; refuse any other."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"split_group_by_color: {name} must be an int, got {value!r}"
        ) from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(
            f"split_group_by_color: {name} must be in [-2**63, 2**63), got {number}"
        )
    return number


def _check_apart(parts: list[list[int]], size: int) -> None:
    """Refuse lists of ranks that overlap, before any group is made."""
    owner: dict[int, list[int]] = {}
    if not isinstance(parts, Sequence):
        raise TypeError(
            f"{called_operation()}: ranks must be lists, one for each group, got "
            f"{parts!r}"
        )
    for part in parts:
        for rank in check_members(part, size, sort=True):
            if rank in owner:
                raise ValueError(
                    f"{called_operation()}: Rank {rank} has appeared in both subgroup "
                    f"{owner[rank]} and {part}"
                )
            owner[rank] = part


def _make_all(
    parts: Sequence[list[int]],
    parent: ProcessGroup,
    timeout: timedelta | None,
    backend: str | None,
    pg_options: Any,
    *,
    group_desc: str | None,
) -> tuple[ProcessGroup | None, Groups]:
    """Make a group of each part of `parent`; all ranks of `parent` call this."""
    mine: ProcessGroup | None = None
    groups: Groups = []
    for ranks in parts:
        made = make_group(
            parent,
            ranks,
            timeout,
            backend,
            pg_options,
            use_local_synchronization=not parent.is_world,
            group_desc=group_desc,
        )
        if isinstance(made, ProcessGroup):
            mine = made
        groups.append(NON_GROUP_MEMBER if made is None else made)
    return mine, groups
