"""The life of groups: `init_process_group`, `new_group`, `destroy_process_group`.

Only `init_process_group` waits for the others. A group made later is known by its
members, so making it needs no message; `new_group` asks the store whether all ranks
make the same groups, see `order`. For one thread at a time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

from allhands import settings
from allhands.backends.config import BackendConfig
from allhands.backends.registry import Backend
from allhands.groups import excepthook
from allhands.groups.making import add_group, check_members, hashed, make_world
from allhands.groups.order import name_in_order
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import (
    NON_GROUP_MEMBER,
    current,
    default_group,
    is_process_wide,
)
from allhands.options import as_timedelta, check_timedelta, default_pg_timeout
from allhands.rendezvous import host_file, presence, rendezvous
from allhands.rendezvous.exchange import HostLeft, exchange
from allhands.rendezvous.launched import is_alone
from allhands.rendezvous.log import LogLevel, say
from allhands.store import HashStore, PrefixStore, Store, TCPStore

__all__ = ["destroy_process_group", "init_process_group", "new_group"]


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
    _ranks: list[int] | None = None,
    enable_reconfigure: bool = False,
) -> None:
    """Join the world: make the group of all ranks, which every other call needs.

    Every rank calls it; it returns once all ranks have come. The ranks find each other
    through `init_method` (a URL; "env://" by default, what `allhands run`, torchrun,
    mpiexec, srun or Kubernetes have set) or through a `store` of yours with `rank` and
    `world_size`. Called without any of these by a process that nobody has launched, it
    makes a world of one (`ALLHANDS_NEEDS_LAUNCHER=1`: it raises).

    Where mpiexec, srun or Kubernetes have started the ranks, it sets RANK, WORLD_SIZE,
    LOCAL_RANK and LOCAL_WORLD_SIZE in the environment, unless they are set.

    Args:
        backend: "native" for CPU arrays, the default; "gloo", that of torch; "mpi"
            for what `mpiexec` has started. Also "device:backend" pairs, a name given
            to `Backend.register_backend`, or one that an installed package offers.
        init_method: "env://", "tcp://host:port", "file:///path", "mpi://" (the default
            with backend "mpi"), or a scheme given to `register_rendezvous_handler`.
        timeout: limit of this call, and of operations on the group; 30 minutes.
        world_size: number of ranks, where the URL or environment does not say it.
        rank: this process's rank, likewise.
        store: a key-value store that all ranks share, instead of `init_method`; also
            one of torch's.
        group_name: not used, as in torch.distributed.
        pg_options: for the backend; for the native one `NativeOptions`. Of a group
            with other backends beside it these are for the native one, all else for
            the others.
        device_id: kept as `ProcessGroup.bound_device_id`.
        _ranks: not for users.
        enable_reconfigure: whether members may change later. No backend here can do
            that (`ProcessGroup.supports_reconfigure`), so it must be False.

    Raises:
        ValueError: the world exists already, or the URL or environment is incomplete.
        DistStoreError: some ranks did not come in time, that of this rank or of rank 0;
            the message names them, on every rank.
        DistNetworkError: no store was found, or it was lost after rank 0 had come.
        RuntimeError: the backend is not available here, or cannot be loaded.
        AssertionError: arguments that exclude each other, or an unknown backend.

    After an error `is_initialized()` is False and the call may be repeated.

    Example:
        ```python
        import allhands as dist

        dist.init_process_group()
        print(dist.get_rank(), "of", dist.get_world_size())
        dist.destroy_process_group()
        ```
    """
    world = current()
    if world.default is not None:
        raise ValueError(
            "trying to initialize the default process group twice! To make another "
            "world, call destroy_process_group() first"
        )
    limit = _limit(timeout, default_pg_timeout)
    backend = backend or Backend.UNDEFINED
    config = BackendConfig(backend)  # refuses what it does not know
    if enable_reconfigure:
        raise RuntimeError(
            f"enable_reconfigure: backend {backend} does not support reconfiguration; "
            f"use shrink_group() or new groups"
        )
    enter = partial(
        _enter,
        start=time.monotonic(),
        name=hashed(_ranks) if _ranks else "0",
        timeout=limit,
        backend=backend,
        pg_options=pg_options,
        device_id=device_id,
    )
    if store is None:
        is_mpi = Backend.MPI in config.get_device_backend_map().values()
        is_open = init_method is None and not is_mpi and rank == world_size == -1
        if is_open and _may_be_alone():
            own = HashStore()
            enter(own, 0, 1, found=own)
            return
        url = init_method or ("mpi://" if is_mpi else "env://")
        _meet_and_enter(url, rank, world_size, limit, enter)
    else:
        _check_store_arguments(init_method, rank, world_size)
        own_store = _as_ours(store)
        enter(own_store, rank, world_size, found=own_store)


def _may_be_alone() -> bool:
    """Whether this process, which nobody has launched, may be a world of one."""
    return not settings.needs_launcher.get() and is_alone(os.environ)


def _meet_and_enter(
    url: str, rank: int, size: int, limit: timedelta, enter: Callable[..., None]
) -> None:
    """Meet the other ranks at `url` and enter their world, within `limit`.

    Rank 0 may still close the store of the world before. A rank that has come to that
    one loses it, and goes on to the next.
    """
    deadline = time.monotonic() + limit.total_seconds()
    while True:
        left = timedelta(seconds=max(deadline - time.monotonic(), 0.001))
        store, own_rank, own_size = next(
            iter(rendezvous(url, rank, size, timeout=left))
        )
        store.set_timeout(limit)
        try:
            return enter(
                PrefixStore("default_pg", store), own_rank, own_size, found=store
            )
        except HostLeft:
            is_hosted_by_rank_0 = isinstance(store, TCPStore)
            if not is_hosted_by_rank_0 or time.monotonic() > deadline:
                raise


def _enter(
    store: Store,
    rank: int,
    size: int,
    *,
    start: float,
    name: str,
    timeout: timedelta,
    found: Store,
    **options: Any,
) -> None:
    """Make the world over `store`, with `timeout` for that since `start`.

    The ranks have `found` each other in a store, which may be `store` itself.
    """
    own_store = PrefixStore(f"{name}/", store)
    call = "init_process_group"
    try:
        make_world(
            store,
            partial(exchange, own_store, rank, size, timeout, call, start, found),
            rank=rank,
            size=size,
            name=name,
            timeout=timeout,
            **options,
        )
        took = time.monotonic() - start
        text = f"joined a world of {size} ranks after {took:.2f} s, store {found!r}"
        say(LogLevel.INFO, "meeting", rank, text)
    finally:
        presence.leave(found)
        host_file.withdraw()


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> ProcessGroup | int | None:
    """Make a group of some ranks of the world.

    It waits for nobody. Every rank of the world calls it, and makes the same groups in
    the same order; with `use_local_synchronization` only the members need to, whatever
    else they make in between.

    That order is checked, by the world's store or by what ranks of this host found
    there: the n-th calls of all ranks must have the same ranks, `backend` and
    `group_desc`. A rank whose call differs from that of the rank which came first
    raises `CollectiveMismatchError`, as do most that come after it; they get no group.
    Ranks that came before have theirs.
    Where such a group, or one made by a later call, should have had a rank that raised,
    it is broken: its next operation, or the one that waits in it, raises the same.

    Args:
        ranks: global ranks; all by default. Group ranks follow their sorted order, or
            this order with `sort_ranks=False`.
        timeout: limit of operations on the group; by default that of the world.
        backend: as in `init_process_group`; by default that of the world.
        pg_options: for the backend.
        use_local_synchronization: the name is made from `ranks` instead of a counter
            that all ranks of the world share, and nothing is compared.
        group_desc: free text, seen as `group_desc`.
        device_id: kept as `ProcessGroup.bound_device_id`.
        sort_ranks: see `ranks`.

    Returns:
        The group; on a rank that is not in it `GroupMember.NON_GROUP_MEMBER`, or None
        with `use_local_synchronization`.

    Raises:
        ValueError: no world; a rank twice or out of range.
        CollectiveMismatchError: other ranks made another group as their n-th; names
            both calls.

    Example:
        ```python
        evens = dist.new_group(range(0, dist.get_world_size(), 2))
        dist.all_reduce(array, group=evens)  # does nothing on odd ranks but warn
        ```
    """
    return make_group(
        default_group(),
        ranks,
        timeout,
        backend,
        pg_options,
        use_local_synchronization,
        group_desc,
        device_id,
        sort_ranks,
    )


def make_group(
    parent: ProcessGroup,
    ranks: Sequence[int] | None,
    timeout: timedelta | None,
    backend: str | None,
    pg_options: Any,
    use_local_synchronization: bool,
    group_desc: str | None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> ProcessGroup | int | None:
    """`new_group` of some ranks of `parent`, whose order of reductions it gets."""
    world = current()
    whole = default_group()
    members = check_members(ranks, whole.size(), sort_ranks)
    limit = _limit(timeout, whole.timeout)
    backend = backend or whole.backend
    BackendConfig(backend)  # refuses what it does not know
    if use_local_synchronization:
        num_alike = world.count_alike(members)
        name: str | None = f"{hashed(members)}:{num_alike}"
    else:
        with world.carrying_out(whole.group_name, "new_group"):
            name = name_in_order(members, backend.lower(), group_desc)
        num_alike = world.count_alike(members)
    if name is None or whole.rank() not in members:
        return None if use_local_synchronization else NON_GROUP_MEMBER
    return add_group(
        members,
        num_alike,
        name,
        timeout=limit,
        backend=backend,
        pg_options=pg_options,
        group_desc=group_desc,
        device_id=device_id,
        parent=parent,
    )


def destroy_process_group(group: ProcessGroup | int | None = None) -> None:
    """Leave `group`, or with None the world and all its groups; free what they hold.

    Operations queued with `async_op` are finished first, and messages received; that
    takes 10 seconds at most, or the group's timeout if it is shorter. What is queued
    longer fails. Members that still need this rank in an operation get
    `RankFailedError`. After the world is destroyed,
    `init_process_group` may be called again. Calling it before the program ends is good
    style but not needed.

    Raises:
        ValueError: there is no such group (any more).
        AssertionError: there is no world.
        CollectiveTimeoutError: peers have not received messages of this rank; it has
            left all the same.
        RankFailedError: so has a peer that never took a message which `isend` began
            and nobody waited for.

    Example:
        ```python
        evens = dist.new_group(range(0, dist.get_world_size(), 2))
        ...
        dist.destroy_process_group(evens)
        dist.destroy_process_group()  # the world, and what groups are left
        ```
    """
    world = current()
    if group == NON_GROUP_MEMBER:
        return
    if world.default is None:
        raise AssertionError(
            "Process group cannot be None: init_process_group was not called"
        )
    if group is None or group is world.default:
        if is_process_wide(world):
            excepthook.restore()
        world.destroy()
        return
    name = getattr(group, "group_name", None)
    if name is None or world.groups.get(name) is not group:
        raise ValueError(f"Invalid process group specified: {group} is not registered")
    world.remove(world.groups[name])


def _limit(timeout: timedelta | None, default: timedelta) -> timedelta:
    """A limit that is kept; where torch checks it in Python it is a timedelta."""
    limit = default if timeout is None else timeout
    check_timedelta(limit)
    return as_timedelta(limit)


def _as_ours(store: Any) -> Store:
    """`store`, one of torch's as one of ours; without torch there is none."""
    theirs = getattr(sys.modules.get("torch.distributed"), "Store", None)
    if theirs is None or not isinstance(store, theirs):
        return store  # type: ignore[no-any-return]
    return import_module("allhands.store.torch_store").TorchStore(store)  # type: ignore[no-any-return]


def _check_store_arguments(init_method: str | None, rank: int, world_size: int) -> None:
    if init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if world_size <= 0:
        raise AssertionError("world_size must be positive if using store")
    if rank < 0:
        raise AssertionError("rank must be non-negative if using store")
    if rank >= world_size:
        raise ValueError(f"rank must be in [0, {world_size}), got {rank}")
