"""Queries about groups: this rank, the members, the backend. None communicates.

If a function takes a group, None means the group of all ranks. For a group that this
rank is not in (`GroupMember.NON_GROUP_MEMBER`), ranks and sizes are -1.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from allhands.backends.communicator import Communicator
from allhands.groups.arguments import Group, member_of, resolve
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import NON_GROUP_MEMBER, current
from allhands.rendezvous.launched import find_launched

__all__ = [
    "GroupMember",
    "get_backend",
    "get_backend_config",
    "get_backend_impl",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "is_available",
    "is_initialized",
    "is_torchelastic_launched",
    "set_timeout",
]


class _HasWorld(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group that calls mean which name none; None before `init_process_group`.

        It is the group of all ranks, unless a program sets another group of this rank,
        or None. Groups that are in use stay as they are.
        """
        return current().default

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup | None) -> None:
        current().default = None if group is None else member_of(group)


class group(metaclass=_HasWorld):
    """`group.WORLD` is the group of all ranks; None before `init_process_group`.

    Example:
        ```python
        assert dist.group.WORLD.size() == dist.get_world_size()
        ```
    """


class GroupMember(metaclass=_HasWorld):
    """`GroupMember.WORLD`, the same as `group.WORLD`, and the mark of a non-member.

    Example:
        ```python
        evens = dist.new_group(range(0, dist.get_world_size(), 2))
        if evens is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.all_reduce(array, group=evens)
        ```
    """

    NON_GROUP_MEMBER = NON_GROUP_MEMBER


def is_available() -> bool:
    """Return whether the package can be used: always True."""
    return True


def is_initialized() -> bool:
    """Return whether `init_process_group` has made a world that still exists.

    Example:
        ```python
        if dist.is_initialized():  # a library that also works on one process
            dist.all_reduce(array)
        ```
    """
    return current().default is not None


def is_torchelastic_launched() -> bool:
    """Return whether a launcher (`allhands run`, torchrun) started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_rank(group: Group = None) -> int:
    """Return this process's rank in `group`; -1 if it is not a member.

    Raises:
        ValueError: there is no world, or no such group.

    Example:
        ```python
        if dist.get_rank() == 0:
            print("once, not on every rank")
        ```
    """
    return resolve(group).rank()


def get_world_size(group: Group = None) -> int:
    """Return the number of ranks in `group`; -1 if this process is not a member.

    Raises:
        ValueError: there is no world, or no such group.

    Example:
        ```python
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
        ```
    """
    return resolve(group).size()


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the rank in `group` of the process that is `global_rank` in the world.

    For the group of all ranks this is the same number, and it is not checked.

    Raises:
        ValueError: the process is not in `group`, or there is no such group.

    Example:
        ```python
        pair = dist.new_group([3, 5])  # on a rank that is in it
        dist.get_group_rank(pair, 5)  # 1
        ```
    """
    return member_of(group).group_rank(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Return the world rank of the process that is `group_rank` in `group`.

    For the group of all ranks this is the same number, and it is not checked.

    Raises:
        ValueError: `group` has no such rank, or there is no such group.

    Example:
        ```python
        pair = dist.new_group([3, 5])  # on a rank that is in it
        dist.get_global_rank(pair, 1)  # 5
        ```
    """
    return member_of(group).global_rank(group_rank)


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Return the global ranks of the members of `group`, by group rank.

    Raises:
        ValueError: this process is not a member, or there is no such group.

    Example:
        ```python
        dist.get_process_group_ranks(None)  # [0, 1, 2, ...]
        ```
    """
    return list(member_of(group).global_ranks)


def get_backend(group: Group = None) -> str:
    """Return the backend that `group` was made with; "undefined" if none was named.

    Raises:
        ValueError: this process is not a member, or there is no such group.

    Example:
        ```python
        dist.init_process_group("gloo")
        dist.get_backend()  # "gloo"
        ```
    """
    return member_of(group).backend


def get_backend_config(group: Group = None) -> str:
    """Return which backend of `group` serves which device type: "cpu:native".

    Raises:
        ValueError: this process is not a member, or there is no such group.

    Example:
        ```python
        dist.init_process_group()
        dist.get_backend_config()  # "cpu:native"
        ```
    """
    return str(member_of(group).config)


def get_backend_impl(group: Group = None, device: Any = None) -> Communicator:
    """Return the communicator that serves arrays of `device` in `group`.

    `device` is a type or name ("cpu", "cuda:1") or a `torch.device`; by default it is
    the device that `group` was bound to, or else the CPU.

    Raises:
        ValueError: this process is not a member, or there is no such group.
        RuntimeError: `group` does not serve that device.

    Example:
        ```python
        engine = dist.get_backend_impl()
        ```
    """
    member = member_of(group)
    return member.get_backend(device or member.bound_device_id or "cpu")


def set_timeout(timeout: timedelta, group: Group = None) -> None:
    """Set the limit of later operations on `group` without a limit of their own.

    This has an effect only on this rank. Operations under way keep their limits.

    Raises:
        TypeError: `timeout` is not a timedelta.
        ValueError: `timeout` is negative; this process is not in `group`.

    Example:
        ```python
        dist.set_timeout(timedelta(minutes=5))
        ```
    """
    member_of(group).set_timeout(timeout)


def get_pg_count() -> int:
    """Return the number of groups made since `init_process_group`, with the world.

    Groups that this rank is not in count, and so do destroyed groups. Without a world
    the number is 0.

    Example:
        ```python
        dist.init_process_group()
        dist.new_group([0])
        dist.get_pg_count()  # 2
        ```
    """
    return current().numbers.num_groups


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Return this process's rank among those that the launcher started on this host.

    Raises:
        RuntimeError: there was no launcher, and there is no `fallback_rank`.
        ValueError: the launcher's variables are incomplete, and there is no
            `fallback_rank`.

    Example:
        ```python
        device = dist.get_node_local_rank(fallback_rank=0)
        ```
    """
    text = os.environ.get("LOCAL_RANK", "")
    if text:
        return int(text)
    try:
        launched = find_launched(os.environ)
    except ValueError:
        if fallback_rank is None:
            raise
        launched = None
    if launched is not None and launched.local_rank >= 0:
        return launched.local_rank
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to work, assuming you are not running in a multi-device "
        "context and want the code to run locally instead."
    )
