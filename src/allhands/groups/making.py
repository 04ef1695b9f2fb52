"""Makes process groups: their names, their communicators, their entries in the World.

Everything here is local: its members determine a group, and its communicators meet at
its first operation. Only one thread at a time may make groups.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from allhands import arrays, settings
from allhands.backends.call_check import calls_checked
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.config import BackendConfig, asked_for
from allhands.backends.content_check import content_checked
from allhands.backends.frames import called_operation
from allhands.backends.per_device import PerDeviceCommunicator
from allhands.backends.registry import Backend, is_native, make_communicator
from allhands.groups import excepthook
from allhands.groups.merge import find_offset
from allhands.groups.process_group import ProcessGroup
from allhands.groups.union import Union
from allhands.groups.user_group import UserGroupCommunicator
from allhands.groups.world import current, default_group
from allhands.options import NativeOptions
from allhands.rendezvous.exchange import exchange
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.ranges import in_ranges
from allhands.rendezvous.roster import Roster
from allhands.store import PrefixStore, Store

__all__ = [
    "add_group",
    "check_device_id",
    "check_members",
    "check_of_world",
    "derive",
    "find",
    "hashed",
    "make_world",
    "restricted",
    "split",
]


def make_world(
    store: Store,
    exchange: Callable[[], Roster],
    *,
    rank: int,
    size: int,
    name: str,
    timeout: timedelta,
    backend: str,
    pg_options: Any = None,
    device_id: Any = None,
    parent: ProcessGroup | None = None,
) -> ProcessGroup:
    """Open the World and make the group of all its ranks.

    Args:
        store: the store that the ranks share, for groups made later.
        exchange: returns the processes of the ranks.
        rank: this rank.
        size: the number of ranks.
        name: the name of the group.
        timeout: limit of its operations.
        backend: the name that the caller passed; "undefined" means the defaults.
        pg_options: options for the backend.
        device_id: kept as `ProcessGroup.bound_device_id`.
        parent: the group from which this one is made.

    After an error the World is in its previous state.

    Raises:
        ValueError: a requested fault cannot happen in this world.
    """
    arrays.load()
    world = current()
    world.open(store, exchange, rank)
    ranks = list(range(size))
    try:
        group = add_group(
            ranks,
            world.numbers.count_alike(ranks),
            name,
            rank=rank,
            timeout=timeout,
            backend=backend,
            pg_options=pg_options,
            group_desc="default_pg",
            device_id=device_id,
            parent=parent,
        )
        world.fault_point.check()
        world.fault_point.tell_of_strangers(size)
    except BaseException:
        world.destroy()
        raise
    if world.is_process_wide:
        excepthook.show_rank(rank, world.destroy_at_end)
    return group


def add_group(
    members: list[int],
    num_alike: int,
    name: str,
    *,
    timeout: timedelta,
    backend: str,
    rank: int | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    device_id: Any = None,
    union: Union | None = None,
    parent: ProcessGroup | None,
    divided: Mapping[str, Any] | None = None,
) -> ProcessGroup:
    """Make and register a group that this rank is in.

    Args:
        members: global ranks, or ranks of `union`, in the order of their group ranks.
        num_alike: the number of earlier groups of these members.
        name: the name under which this rank knows the group.
        timeout: limit of its operations.
        backend: the name that the caller passed; "undefined" means the defaults.
        rank: this rank in the group; by default it follows from the global rank.
        pg_options: options for the backend.
        group_desc: free text.
        device_id: kept as `ProcessGroup.bound_device_id`.
        union: kept as `ProcessGroup.union`.
        parent: the group from which this one is made; with None, settings determine the
            reduction order.
        divided: what `Communicator.divide` of the parent has returned.

    Raises:
        ValueError: there is already a group with this name.
    """
    world = current()
    home = union or world
    _check_name(name)
    reduce_order = _reduce_order(pg_options, parent)
    group = _make_group(
        CommunicatorOptions(
            store=PrefixStore(f"{name}/", home.store),
            group_rank=members.index(default_group().rank()) if rank is None else rank,
            group_size=len(members),
            timeout=timeout,
            group_id=name,
            global_ranks_in_group=members,
            num_alike=num_alike,
            roster=home.roster,
            world_ranks=members if union is None else (),
            device_id=device_id,
            reduce_order=reduce_order,
            divided=divided or {},
        ),
        BackendConfig(backend),
        pg_options,
    )
    group.group_desc = group_desc or "undefined"
    group.backend = backend.lower()
    group.bound_device_id = device_id
    group.union = union
    group.reduce_order = reduce_order
    world.add(group)
    text = f"made group {name!r} of ranks {in_ranges(members)}, backend {group.config}"
    say(LogLevel.INFO, "groups", world.fault_point.rank, text)
    return group


def derive(
    parent: ProcessGroup,
    picked: list[int],
    *,
    timeout: timedelta,
    backend: str,
    pg_options: Any,
    group_desc: str,
    group_name: str | None = None,
    divided: Mapping[str, Any] | None = None,
) -> ProcessGroup:
    """Make a group of the `picked` ranks of `parent`, in this order, with this rank.

    `divided` is what `Communicator.divide` has returned.
    """
    members = [parent.global_rank(rank) for rank in picked]
    home = parent.union or current()
    num_alike = home.numbers.count_alike(members)
    name = f"{hashed(members)}:{num_alike}"
    if parent.union is not None:
        name = f"{parent.union.name}:{name}"
    try:
        return add_group(
            members,
            num_alike,
            group_name or name,
            rank=picked.index(parent.rank()),
            timeout=timeout,
            backend=backend,
            pg_options=pg_options,
            group_desc=group_desc,
            device_id=parent.bound_device_id,
            union=parent.union,
            parent=parent,
            divided=divided,
        )
    except (TypeError, ValueError):  # an argument of this rank: the call does not count
        home.numbers.take_back_alike(members)
        raise


def split(
    parent: ProcessGroup,
    ranks: Sequence[int],
    timeout: timedelta | None = None,
    opts: Any = None,
    group_name: str | None = None,
    group_desc: str | None = None,
    backend: str | None = None,
    sort: bool = True,
    divided: Mapping[str, Any] | None = None,
) -> ProcessGroup | None:
    """See `ProcessGroup.split_group`; `backend` as in `allhands.split_group`.

    Without `sort` the ranks of the group are in the order given. `divided` is what
    `Communicator.divide` has returned.
    """
    picked = check_members(ranks, parent.size(), sort)
    chosen = restricted(parent, backend)
    if parent.rank() not in picked:
        return None
    return derive(
        parent,
        picked,
        timeout=parent.timeout if timeout is None else timeout,
        backend=chosen,
        pg_options=opts,
        group_desc=group_desc or f"{parent.group_desc}:split",
        group_name=group_name,
        divided=divided,
    )


def merge(
    local: ProcessGroup,
    store: Store,
    size: int,
    timeout: timedelta,
    group_name: str | None = None,
    group_desc: str | None = None,
) -> ProcessGroup:
    """See `ProcessGroup.merge_remote_group`."""
    call = "merge_remote_group"
    own = local.rank(), local.size()
    with current().carrying_out(local.group_name, call):
        offset = find_offset(
            local.communicator, store, *own, size, timeout, local.group_name
        )
        met = PrefixStore(f"merge/{offset.attempt}", store)
        rank = offset.first + local.rank()
        asked = asked_for(local.backend)
        roster = exchange(met, rank, size, timeout, call, asked=asked)
    name = group_name or f"merged:{roster.token_for('name').hex()[:16]}"
    union = Union(name, met, roster)
    ranks = list(range(size))
    return add_group(
        ranks,
        union.numbers.count_alike(ranks),
        name,
        rank=rank,
        timeout=timeout,
        backend=local.backend,
        group_desc=group_desc or "merged",
        union=union,
        parent=local,
    )


def find(name: str) -> ProcessGroup:
    """Return the group of this name, for reading a pickled group.

    Raises:
        ValueError: this process has no such group.
    """
    try:
        return current().groups[name]
    except KeyError:
        raise ValueError(
            f"group {name!r} is not registered in this process: a pickled group, or a "
            f"mesh with it, can be read only by its members, while it is there"
        ) from None


class _Maker:
    """Gives the functions above to the groups, which are in a lower layer."""

    find = staticmethod(find)
    split = staticmethod(split)
    merge = staticmethod(merge)


def check_of_world(operation: str, group: ProcessGroup) -> None:
    """Refuse a merged group, whose ranks have no numbers in this world.

    Raises:
        ValueError: `group` is a merged group.
    """
    if group.union is not None:
        raise ValueError(
            f"{operation}: {group} has ranks of other worlds; split_group and "
            f"shrink_group make groups of them"
        )


def check_device_id(device_id: Any) -> None:
    """Refuse a device that is not one of an accelerator: 1, "cuda:1", `torch.device`.

    Raises:
        TypeError: it is of another type.
        ValueError: it is the CPU, or has no index.
    """
    if device_id is None or isinstance(device_id, int):
        return
    is_device = isinstance(device_id, str) or hasattr(device_id, "type")
    if not is_device:
        raise TypeError(
            f"{called_operation()}: device_id must be a torch.device, an int or a text "
            f'such as "cuda:1", got {device_id!r}'
        )
    kind, _, index = str(device_id).partition(":")
    if kind == "cpu" or not index.isdecimal():
        raise ValueError(
            f"{called_operation()}: device_id must be an "
            f'accelerator with an index, such as "cuda:1", got {device_id!r}'
        )


def check_members(
    ranks: Sequence[int] | None, world_size: int, sort: bool
) -> list[int]:
    """Return the global ranks of a new group, checked and in order."""
    try:
        members = [*map(operator.index, range(world_size) if ranks is None else ranks)]
    except TypeError:
        raise TypeError(
            f"{called_operation()}: ranks must be a list of ints, got {ranks!r}"
        ) from None
    if not members:
        raise ValueError(f"{called_operation()}: ranks list must not be empty")
    if len(members) > world_size:
        raise ValueError(
            f"{called_operation()}: the new group's world size should be less or equal "
            f"to the world size set by init_process_group ({world_size}), got "
            f"{len(members)} ranks"
        )
    if len(set(members)) != len(members):
        raise ValueError(
            f"{called_operation()}: ranks list must not contain duplicate entries, got "
            f"{members}"
        )
    for rank in members:
        if not 0 <= rank < world_size:
            raise ValueError(
                f"{called_operation()}: Rank {rank} is out of range. Valid ranks are 0 "
                f"to {world_size - 1} (world_size={world_size})"
            )
    return sorted(members) if sort else members


def _check_name(name: str) -> None:
    groups = current().groups
    if name in groups:
        raise ValueError(
            f"{called_operation()}: there is a group of the name {name!r} already: "
            f"{groups[name]}"
        )


def hashed(ranks: Sequence[int]) -> str:
    """Return a name for the group of `ranks` that each rank computes without asking."""
    import hashlib  # some milliseconds that a mere import of the package need not take

    return hashlib.sha1(repr(list(ranks)).encode(), usedforsecurity=False).hexdigest()


def _reduce_order(pg_options: Any, parent: ProcessGroup | None) -> str:
    """Return the reduction order of a group with these options, made from `parent`."""
    if isinstance(pg_options, NativeOptions) and pg_options.reduce_order is not None:
        return pg_options.reduce_order
    return settings.reduce_order.get() if parent is None else parent.reduce_order


def restricted(parent: ProcessGroup, backend: str | None) -> str:
    """Return the backend of a child group: that of `parent`, or a part of it."""
    if backend is None:
        return parent.backend
    assert parent.config is not None, "a registered group is bound"
    theirs = parent.config.get_device_backend_map()
    for device, name in BackendConfig(backend).get_device_backend_map().items():
        if theirs.get(device) != name:
            raise ValueError(
                f"split_group: backend {backend!r} serves {device} by {name}, but the "
                f"parent group {parent.group_name!r} has {parent.config}"
            )
    return backend


def _make_group(
    options: CommunicatorOptions, config: BackendConfig, pg_options: Any
) -> ProcessGroup:
    """Return a group with one communicator per backend in `config`.

    A backend may also make the whole group, which then serves every device.
    """
    by_name: dict[str, Communicator] = {}
    # In one order on all ranks: some backends wait for all members as they are made.
    devices = dict(sorted(config.get_device_backend_map().items()))
    is_real = Backend.FAKE not in devices.values()
    of_cpu = devices[config.usual_device_type] if is_real else None
    for device, name in devices.items():
        if name in by_name:
            continue
        own = replace(options, store=PrefixStore(f"{device}/", options.store))
        theirs = _options_of(name, devices.values(), pg_options)
        try:
            made = make_communicator(name, own, theirs)
            _check_made(name, made)
            if name == of_cpu and not isinstance(made, ProcessGroup):
                made = calls_checked(made, options)
        except BaseException:
            _close(by_name.values())
            raise
        if isinstance(made, ProcessGroup):
            _close(by_name.values())
            made.bind(options, config, UserGroupCommunicator(made), _Maker())
            return made
        by_name[name] = made
    group = ProcessGroup(options.group_rank, options.group_size)
    if len(by_name) == 1:
        [communicator] = by_name.values()
    else:
        serving = {device: by_name[name] for device, name in devices.items()}
        communicator = PerDeviceCommunicator(serving)
    if is_real:
        communicator = content_checked(communicator, options)
    group.bind(options, config, communicator, _Maker())
    return group


def _check_made(name: str, made: object) -> None:
    """Check what the function of a registered backend has returned."""
    if not isinstance(made, ProcessGroup) and not hasattr(made, "submit"):
        raise TypeError(
            f"backend {name!r}: the function that was registered for it has to return "
            f"a ProcessGroup or a Communicator, not {made!r}"
        )


def _options_of(name: str, names: Iterable[str], pg_options: Any) -> Any:
    """Return the options for the backend `name` of a group with the backends `names`.

    If some backends are native and some are not, each gets the options of its kind.
    """
    are_native = {is_native(each) for each in names}
    is_for_native = isinstance(pg_options, NativeOptions)
    is_for_all = len(are_native) == 1
    return pg_options if is_for_all or is_native(name) is is_for_native else None


def _close(communicators: Iterable[Communicator]) -> None:
    for communicator in communicators:
        communicator.close(0.0)
