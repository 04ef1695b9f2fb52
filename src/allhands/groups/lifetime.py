"""The life of groups: `init_process_group`, `new_group`, `destroy_process_group`.

Only `init_process_group` waits for the other ranks. The members of a later group
determine it completely, so making it needs no message. `new_group` asks the store
whether all ranks make the same groups, see `order`. Only one thread at a time may call
these functions.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from numbers import Integral
from typing import Any

from allhands import settings
from allhands.backends.config import BackendConfig, asked_for
from allhands.backends.frames import called_operation
from allhands.backends.registry import Backend
from allhands.groups import excepthook, store_watch
from allhands.groups.making import (
    add_group,
    check_device_id,
    check_members,
    hashed,
    make_world,
)
from allhands.groups.order import name_in_order
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import (
    NON_GROUP_MEMBER,
    current,
    default_group,
)
from allhands.options import as_timedelta, check_timedelta, default_pg_timeout
from allhands.rendezvous import host_file, presence, rendezvous
from allhands.rendezvous.exchange import HostLeft, exchange
from allhands.rendezvous.launched import is_alone
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.place import check_place
from allhands.store import HashStore, PrefixStore, Store, TCPStore
from allhands.store.watch import watch_waits

__all__ = ["destroy_process_group", "init_process_group", "new_group"]

watch_waits(store_watch.look)


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

    Every rank calls it; it returns when all ranks have come. The ranks find each other
    through `init_method` or through a `store` with `rank` and `world_size`.
    `init_method` is a URL, by default "env://", which reads the environment of
    `allhands run`, torchrun, mpiexec, srun or Kubernetes. If no launcher started the
    process, a call without any of these arguments makes a world of one. With
    `ALLHANDS_NEEDS_LAUNCHER=1` it raises an error instead.

    If mpiexec, srun or Kubernetes started the ranks, the call sets RANK, WORLD_SIZE,
    LOCAL_RANK and LOCAL_WORLD_SIZE in the environment, unless they are set.

    Args:
        backend: "native" for CPU arrays, the default; "gloo" for torch's Gloo; "mpi"
            for ranks that `mpiexec` started. It may also be "device:backend" pairs, a
            name that was passed to `Backend.register_backend`, or a name that an
            installed package offers.
        init_method: "env://", "tcp://host:port", "file:///path", "mpi://" (the default
            with backend "mpi"), or a URL with a scheme that was passed to
            `register_rendezvous_handler`.
        timeout: limit of this call, and of operations on the group; by default 30
            minutes.
        world_size: number of ranks, if the URL or environment does not give it.
        rank: this process's rank, if the URL or environment does not give it.
        store: a key-value store that all ranks share, instead of `init_method`. It may
            be a store of torch.
        group_name: not used, as in torch.distributed.
        pg_options: options for the backend; `NativeOptions` for the native one. In a
            group with several backends, `NativeOptions` go to the native one, and all
            other options to the others.
        device_id: the accelerator of this rank, as a `torch.device` with an index, an
            int, or a text such as "cuda:1". It is kept as
            `ProcessGroup.bound_device_id`.
        _ranks: not for users.
        enable_reconfigure: whether members may change later. No backend here can do
            that (`ProcessGroup.supports_reconfigure`), so it must be False.

    Raises:
        ValueError: there is a world already, the URL or environment is incomplete, the
            ranks ask for different backends, or an environment variable has no value of
            its [setting](settings.md).
        DistStoreError: some ranks did not come within the limit of this rank or of rank
            0; the message names them, on every rank.
        DistNetworkError: no store was found, or it was lost after rank 0 had come.
        RuntimeError: the backend is not available here, or cannot be loaded.
        AssertionError: some arguments exclude each other, or the backend is unknown.

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
    settings.check_all()
    limit = _limit(timeout, default_pg_timeout)
    check_device_id(device_id)
    backend = Backend.UNDEFINED if backend is None else backend
    config = BackendConfig(backend)  # refuses unknown backends
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
        usual = "mpi://" if is_mpi else "env://"
        url = usual if init_method is None else init_method
        _meet_and_enter(url, rank, world_size, limit, enter)
    else:
        _check_store_arguments(init_method, rank, world_size)
        own_store = _as_ours(store)
        enter(own_store, rank, world_size, found=own_store)


def _may_be_alone() -> bool:
    """Whether this process, which no launcher started, may be a world of one."""
    return not settings.needs_launcher.get() and is_alone(os.environ)


def _meet_and_enter(
    url: str, rank: int, size: int, limit: timedelta, enter: Callable[..., None]
) -> None:
    """Meet the other ranks at `url` and enter their world, within `limit`.

    Rank 0 may still be closing the store of the previous world. A rank that has come to
    that store loses it, and tries again with the next one.
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
    backend: str,
    **options: Any,
) -> None:
    """Make the world over `store`; `timeout` counts from `start`.

    The ranks have `found` each other in a store, which may be `store` itself.
    """
    own_store = PrefixStore(f"{name}/", store)
    call, asked = "init_process_group", asked_for(backend)
    try:
        make_world(
            store,
            partial(
                exchange, own_store, rank, size, timeout, call, start, found, asked
            ),
            rank=rank,
            size=size,
            name=name,
            timeout=timeout,
            backend=backend,
            **options,
        )
        took = time.monotonic() - start
        ranks = f"{size} rank{'s' * (size != 1)}"
        text = f"joined a world of {ranks} after {took:.2f} s, store {found!r}"
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

    The call waits for no rank. Every rank of the world calls it, and makes the same
    groups in the same order. With `use_local_synchronization` only the members need to
    call it, and they may make any other groups in between.

    The package checks this order, through the world's store or through notes of other
    ranks of this host: the n-th calls of all ranks must have the same ranks, `backend`
    and `group_desc`. If the call of a rank differs from that of the rank which came
    first, the rank raises `CollectiveMismatchError`. Most ranks that come after it
    raise the same error. These ranks get no group; ranks that came before have their
    groups. If such a group, or one that a later call makes, lacks a rank because the
    rank raised, the group is broken. Its next operation, or an operation that waits in
    it, raises the same error.

    Args:
        ranks: global ranks; all by default. Group ranks follow their sorted order, or
            this order with `sort_ranks=False`.
        timeout: limit of operations on the group; by default that of the world.
        backend: as in `init_process_group`; by default that of the world.
        pg_options: options for the backend.
        use_local_synchronization: the name of the group comes from `ranks` instead of a
            counter that all ranks of the world share, and calls are not compared.
        group_desc: free text, the attribute `group_desc`.
        device_id: kept as `ProcessGroup.bound_device_id`.
        sort_ranks: see `ranks`.

    Returns:
        The group. On a rank outside the group, `GroupMember.NON_GROUP_MEMBER`, or None
        with `use_local_synchronization`.

    Raises:
        ValueError: there is no world; a rank is given twice or is out of range.
        CollectiveMismatchError: the n-th call of other ranks makes another group; the
            message names both calls.

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
    """Make a group as `new_group` does; it gets the reduction order of `parent`."""
    check_device_id(device_id)
    world = current()
    whole = default_group()
    members = check_members(ranks, whole.size(), sort_ranks)
    limit = _limit(timeout, whole.timeout)
    backend = backend or whole.backend
    asked = asked_for(backend)  # refuses unknown backends
    # The ranks have agreed on that of the world, whatever they call it.
    named = "" if asked == asked_for(whole.backend) else asked.backend
    call = members, named, group_desc, use_local_synchronization
    refused = world.numbers.take_refused(call)
    name: str | None
    if refused is not None:
        name, num_alike = refused
    elif use_local_synchronization:
        num_alike = world.numbers.count_alike(members)
        name = f"{hashed(members)}:{num_alike}"
    else:
        with world.carrying_out(whole.group_name, "new_group"):
            name = name_in_order(members, named, group_desc)
        num_alike = world.numbers.count_alike(members)
    if name is None or whole.rank() not in members:
        return None if use_local_synchronization else NON_GROUP_MEMBER
    try:
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
    except (TypeError, ValueError):  # an argument of this rank, which may call again
        world.numbers.note_refused(call, name, num_alike)
        raise


def destroy_process_group(group: ProcessGroup | int | None = None) -> None:
    """Leave `group`, or with None the world and all its groups; free their resources.

    The call first waits until operations queued with `async_op` have ended and peers
    have received this rank's messages. It waits at most 10 seconds, or the group's
    timeout if this is shorter. Operations and messages that are not done by then fail.
    Members that still need this rank in an operation get `RankFailedError`. After the
    world is destroyed, `init_process_group` may be called again. A program need not
    call this function before it ends, but it is good style.

    Raises:
        ValueError: there is no such group, or no longer.
        AssertionError: there is no world.
        RuntimeError: a callback of an operation of the group calls it. The group stays;
            let another thread destroy it.
        CollectiveTimeoutError: peers have not received messages of this rank. The rank
            has left the group nevertheless.
        RankFailedError: a peer left without receiving a message that `isend` began and
            for which nobody waited.

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
        try:
            world.destroy()
        finally:
            if world.default is None and world.is_process_wide:
                excepthook.restore()
        return
    name = getattr(group, "group_name", None)
    if name is None or world.groups.get(name) is not group:
        raise ValueError(f"Invalid process group specified: {group} is not registered")
    world.remove(world.groups[name])


def _limit(timeout: timedelta | None, default: timedelta) -> timedelta:
    """Return the limit to use; refuse what torch's Python code refuses."""
    limit = default if timeout is None else timeout
    if not isinstance(limit, timedelta):  # the name takes a while to find
        check_timedelta(limit, called_operation())
    return as_timedelta(limit)


def _as_ours(store: Any) -> Store:
    """Return `store`; a store of torch is wrapped as a store of this package."""
    theirs = getattr(sys.modules.get("torch.distributed"), "Store", None)
    if theirs is None or not isinstance(store, theirs):
        return store  # type: ignore[no-any-return]
    return import_module("allhands.store.torch_store").TorchStore(store)  # type: ignore[no-any-return]


def _check_store_arguments(init_method: str | None, rank: int, world_size: int) -> None:
    if init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    for name, value in (("rank", rank), ("world_size", world_size)):
        if not isinstance(value, Integral):
            raise TypeError(f"{name} must be an int, got {value!r}")
    if world_size <= 0:
        raise AssertionError("world_size must be positive if using store")
    if rank < 0:
        raise AssertionError("rank must be non-negative if using store")
    check_place(rank, world_size)
