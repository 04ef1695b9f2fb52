"""torch.distributed's second path to the same names, for programs that use it.

Some names with an underscore are here, too: programs and libraries take them from
torch's module. They have torch's arguments and results; those that make tensors are in
`allhands.torch.object_tensors`. New programs need none of them.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import warnings
from datetime import timedelta
from typing import Any

from allhands import *  # noqa: F403 - re-exports all of it
from allhands import (
    P2POp,
    ProcessGroup,
    ReduceOp,
    Store,
    destroy_process_group,
    irecv,
    isend,
    new_group,
)
from allhands import __all__ as __all__
from allhands import _all_gather_base as _all_gather_base
from allhands import _coalescing_manager as _coalescing_manager
from allhands import _reduce_scatter_base as _reduce_scatter_base
from allhands.arrays import library_of
from allhands.errors import DistStoreError
from allhands.groups import queries
from allhands.groups.arguments import Group, resolve
from allhands.groups.outsider import warn_outsider
from allhands.groups.queries import set_timeout as _set_pg_timeout  # noqa: F401
from allhands.groups.world import NON_GROUP_MEMBER, current
from allhands.groups.world import default_group as _get_default_group
from allhands.ops.coalesced import CoalescedCalls as _CoalescingManager  # noqa: F401
from allhands.options import AllgatherOptions as AllgatherOptions
from allhands.options import as_timedelta, default_pg_timeout

logger = logging.getLogger(__name__)
"""The package writes nothing to it."""

STORE_BASED_BARRIER_PREFIX = "store_based_barrier_key"

default_pg_nccl_timeout = default_pg_timeout
"""Groups of the backend nccl have the limit of all others."""

_OWN_TAG, _USER_TAG = "ptd:", "user:"
"""How the tags begin that groups have by themselves, or by their makers."""

_OF_TORCH = {"_get_pg_default_device", "_object_to_tensor", "_tensor_to_object"}

_OF_TABLES = {
    "_backend": "default_backend",
    "_group_count": "group_count",
    "_pg_backend_config": "pg_backend_config",
    "_pg_group_ranks": "pg_group_ranks",
    "_pg_map": "pg_map",
    "_pg_names": "pg_names",
    "_pg_to_tag": "pg_to_tag",
    "_tags_to_pg": "tags_to_pg",
}
"""The names of `_world`'s tables in the module."""


def __getattr__(name: str) -> object:
    if name in _OF_TORCH:  # imports torch: loaded when somebody asks
        return getattr(importlib.import_module("allhands.torch.object_tensors"), name)
    if name in _OF_TABLES:
        return getattr(_world, _OF_TABLES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


class _Tables:
    """This rank's groups, in the form of torch's tables.

    Each table is a new dict, so a change of it has no effect.
    """

    @property
    def default_pg(self) -> ProcessGroup | None:
        """The group that calls mean which name none; None without a world."""
        return current().default

    @default_pg.setter
    def default_pg(self, group: ProcessGroup | None) -> None:
        _update_default_pg(group)

    @property
    def default_backend(self) -> str:
        """The backend of `default_pg`."""
        return queries.get_backend()

    @property
    def group_count(self) -> int:
        """The number of groups made so far."""
        return queries.get_pg_count()

    @property
    def pg_map(self) -> dict[ProcessGroup, tuple[str, Store]]:
        """The backend and the store of each group."""
        return {
            each: (each.backend, each.get_group_store())
            for each in current().groups.values()
        }

    @property
    def pg_names(self) -> dict[ProcessGroup, str]:
        """The name of each group."""
        return {each: name for name, each in current().groups.items()}

    @property
    def pg_group_ranks(self) -> dict[ProcessGroup, dict[int, int]]:
        """The group rank of each member of each group, by global rank."""
        return {
            each: {rank: i for i, rank in enumerate(each.global_ranks)}
            for each in current().groups.values()
        }

    @property
    def pg_backend_config(self) -> dict[ProcessGroup, str]:
        """The "device:backend" pairs of each group."""
        return {each: str(each.config) for each in current().groups.values()}

    @property
    def pg_to_tag(self) -> dict[ProcessGroup, str]:
        """The tag of each group."""
        return {each: _full_tag(each) for each in current().groups.values()}

    @property
    def tags_to_pg(self) -> dict[str, list[ProcessGroup]]:
        """The groups by tag; those that were given none also by the empty one."""
        found: dict[str, list[ProcessGroup]] = {"": []}
        for each in current().groups.values():
            found.setdefault(_full_tag(each), []).append(each)
            if not each._tag:
                found[""].append(each)
        return found

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        """The name, backends and ranks of each group."""
        return [
            {
                "pg_name": name,
                "pg_desc": each.group_desc,
                "backend_config": str(each.config),
                "ranks": [] if each.is_world else list(each.global_ranks),
                "group_size": each.size(),
                "group_count": self.group_count,
            }
            for name, each in current().groups.items()
        ]


_world = _Tables()


def _get_default_store() -> Store:
    """What the ranks met in, with the keys of the package in it.

    Raises:
        ValueError: there is no world yet.
    """
    _get_default_group()
    return current().store


def _update_default_pg(pg: ProcessGroup | None) -> None:
    """Let `pg` be the group that calls mean which name none."""
    queries.GroupMember.WORLD = pg


def _new_group_with_tag(
    ranks: list[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    backend_options: Any = None,
    pg_tag: str | None = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """Return `new_group`, with a tag by which `_find_pg_by_ranks_and_tag` finds it."""
    made = new_group(
        ranks,
        timeout,
        backend,
        backend_options,
        use_local_synchronization,
        group_desc,
        device_id,
    )
    if pg_tag and isinstance(made, ProcessGroup):
        made._tag = f"{_USER_TAG}{pg_tag}"
    return made


def _get_group_tag(pg: ProcessGroup) -> str:
    """Return the tag that a group was given; else its own, which no other group has."""
    return _full_tag(pg).removeprefix(_USER_TAG)


def _full_tag(pg: ProcessGroup) -> str:
    return pg._tag or f"{_OWN_TAG}{pg.group_name}"


def _find_pg_by_ranks_and_tag(tag: str, ranks: list[int]) -> ProcessGroup | None:
    """Return this rank's first group of these global ranks and this tag, or None.

    The empty tag means any group that was given none.
    """
    if tag and not tag.startswith((_OWN_TAG, _USER_TAG)):
        tag = f"{_USER_TAG}{tag}"
    for each in _world.tags_to_pg.get(tag, ()):
        if each.size() == len(ranks) and set(each.global_ranks) == set(ranks):
            return each
    return None


def _find_or_create_pg_by_ranks_and_tag(
    tag: str, ranks: list[int], stride: int
) -> ProcessGroup:
    """Return this rank's group among `ranks`, which are several groups of `stride`.

    If this rank has no such group with this tag, it makes one. Every member has to.

    Raises:
        ValueError: the number of ranks is no multiple of `stride`; or there is no such
            group, and no tag to give to a new one.
        AssertionError: this rank is not among `ranks`.
    """
    if len(ranks) % stride:
        raise ValueError(
            f"Ranks length ({len(ranks)}) must be divisible by stride ({stride})"
        )
    here = queries.get_rank()
    if here not in ranks:
        raise AssertionError(
            f"rankset doesn't include the current node: rank {here} is not in {ranks}"
        )
    first = ranks.index(here) // stride * stride
    mine = sorted(ranks[first : first + stride])
    found = _find_pg_by_ranks_and_tag(tag, mine)
    if found is not None:
        return found
    if not tag:
        raise ValueError("Cannot automatically create PG with empty tag")
    made = _new_group_with_tag(mine, pg_tag=tag, use_local_synchronization=True)
    assert isinstance(made, ProcessGroup), "this rank is a member"
    return made


def _resolve_group_name_by_ranks_and_tag(ranks: list[int], tag: str) -> str:
    """Return the name of the group that `_find_pg_by_ranks_and_tag` finds.

    Raises:
        ValueError: it finds none.
    """
    group = _find_pg_by_ranks_and_tag(tag, ranks)
    if group is None:
        raise ValueError(f"there is no group of the ranks {ranks} with tag {tag!r}")
    return group.group_name


def _rank_not_in_group(group: Group) -> bool:
    """Whether `group` is one that this rank is not in; None is the group of all."""
    return group == NON_GROUP_MEMBER


def _warn_not_in_group(op_name: str) -> None:
    """Warn that `op_name` runs on a rank outside its group."""
    warn_outsider(op_name)


def _group_or_default_group(group: ProcessGroup | None = None) -> ProcessGroup:
    """Return `group`; the group of all ranks for None."""
    return group or _get_default_group()


def _get_global_rank(group: ProcessGroup, rank: int) -> int:
    """Return `get_global_rank`; warns."""
    warnings.warn(
        "`allhands.distributed_c10d._get_global_rank` is deprecated, please use "
        "`allhands.get_global_rank` instead",
        FutureWarning,
        stacklevel=2,
    )
    return queries.get_global_rank(group, rank)


def _get_group_size(group: Group) -> int:
    """Return `get_world_size`."""
    return queries.get_world_size(group)


def _get_group_size_by_name(group_name: str) -> int:
    """Return the number of ranks of the group of this name."""
    return _resolve_process_group(group_name).size()


def _resolve_process_group(group_name: str) -> ProcessGroup:
    """Return this rank's group of this name.

    Raises:
        RuntimeError: there is none.
    """
    group = current().groups.get(group_name)
    if group is None:
        raise RuntimeError(
            f"Could not resolve the process group registered under the name "
            f"{group_name}"
        )
    return group


def _get_process_group_name(pg: Group) -> str:
    """Return the name of a group of this rank; "None" for anything else."""
    return next((n for n, each in current().groups.items() if each is pg), "None")


def _get_process_group_store(pg: ProcessGroup) -> Store:
    """Return the store of a group."""
    return pg.get_group_store()


def _get_object_coll_device(group: Group = None) -> str:
    """Return the type of device by which objects travel: the CPU, if possible."""
    config = (resolve(group) or _get_default_group()).config
    return "cpu" if config is None else config.usual_device_type


def _check_single_tensor(param: Any, param_name: str) -> None:
    """Raise TypeError if `param` is not an array."""
    try:
        library_of(param)
    except TypeError as error:
        raise TypeError(
            f"Invalid function argument. Expected parameter `{param_name}` to be an "
            f"array: {error}"
        ) from None


def _check_tensor_list(param: Any, param_name: str) -> None:
    """Raise TypeError if `param` is not a list of arrays."""
    if not isinstance(param, list):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{param_name}` to be a "
            f"list of arrays, got {type(param).__name__}"
        )
    for each in param:
        _check_single_tensor(each, param_name)


def _check_op(op: Any) -> None:
    """Raise ValueError if `op` is neither `isend` nor `irecv`."""
    if op not in (isend, irecv):
        raise ValueError(
            f"Invalid ``op``. Expected ``op`` to be of type ``allhands.isend`` or "
            f"``allhands.irecv``, got {op!r}."
        )


def _check_p2p_op_list(p2p_op_list: Any) -> None:
    """Raise ValueError if it is not a list of `P2POp`s of one group."""
    if not isinstance(p2p_op_list, list) or not all(
        isinstance(each, P2POp) for each in p2p_op_list
    ):
        raise ValueError(
            f"Invalid ``p2p_op_list``. Each op is expected to be of type "
            f"``allhands.P2POp``, in a list; got {p2p_op_list!r}"
        )
    if any(each.group is not p2p_op_list[0].group for each in p2p_op_list):
        raise ValueError("All ops need to use the same group.")


def _hash_ranks_to_str(ranks: list[int]) -> str:
    """Return a name for a new group of `ranks`; no group so far has it."""
    text = "_".join(map(str, [*ranks, f"of {queries.get_pg_count()}"]))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _check_valid_timeout(timeout: Any) -> None:
    """Raise TypeError if `timeout` is not a timedelta."""
    as_timedelta(timeout)


def _get_default_timeout(backend: str) -> timedelta:
    """Return the time limit of groups that are made without one."""
    return default_pg_timeout


def _make_nccl_premul_sum(factor: float) -> ReduceOp:
    """Return `ReduceOp.PREMUL_SUM(factor)`."""
    return ReduceOp.PREMUL_SUM(factor)


def _abort_process_group(group: Group = None) -> None:
    """Break `group` for every member, and forget it; with the world, all groups.

    Raises:
        AssertionError: there is no world.
        ValueError: there is no such group.
    """
    if _rank_not_in_group(group):
        return
    world = current()
    if world.default is not None:
        member = resolve(group)
        for each in world.groups.values() if member.is_world else [member]:
            each.abort()
    destroy_process_group(group if isinstance(group, ProcessGroup) else None)


def _store_based_barrier(
    rank: int,
    store: Store,
    group_name: str,
    rendezvous_count: int,
    timeout: timedelta,
    logging_interval: timedelta = timedelta(seconds=10),
) -> None:
    """Return when `rendezvous_count` ranks have called it with one name, once each.

    Raises:
        DistStoreError: they did not within `timeout`.
    """
    key = f"{STORE_BASED_BARRIER_PREFIX}:{group_name}"
    try:
        store.barrier(key, rendezvous_count, timeout)
    except DistStoreError as error:
        raise DistStoreError(
            f"Timed out initializing process group in store based barrier on rank "
            f"{rank}, for key: {key} (world_size={rendezvous_count}, "
            f"timeout={timeout}): {error}"
        ) from error
