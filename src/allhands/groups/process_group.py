"""ProcessGroup: some ranks of the world that communicate, as one of them sees them.

A ProcessGroup knows its members. Its `communicator` carries out the operations of
`collectives`, `reductions` and the other modules. torch's methods for operations come
from `TorchMethods`. Ranks in its methods are ranks of the group. `init_process_group`
and `new_group` make and bind a group. A user's own backend may derive from the class
and override torch's methods.

It is thread-safe, but the members must agree on the order of operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from operator import index
from typing import Any, Protocol

from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.config import BackendConfig
from allhands.backends.content_check import CheckedCommunicator
from allhands.backends.frames import called_operation
from allhands.backends.hooks import HookedCommunicator
from allhands.backends.per_device import PerDeviceCommunicator
from allhands.errors import CollectiveTimeoutError, RankFailedError
from allhands.groups.device_backend import DeviceBackend
from allhands.groups.hook_methods import HookMethods
from allhands.groups.private_methods import PrivateMethods
from allhands.groups.torch_methods import TorchMethods
from allhands.groups.union import Union
from allhands.options import as_timedelta, default_pg_timeout, to_seconds
from allhands.store import Store

__all__ = ["GOODBYE_OF_THE_FAILED", "LONGEST_GOODBYE", "GroupMaker", "ProcessGroup"]

LONGEST_GOODBYE = timedelta(seconds=10)
"""The most that leaving a group waits, whatever the timeout of the group is.

Operations under way when everybody leaves take milliseconds, unless a peer never comes.
"""
GOODBYE_OF_THE_FAILED = timedelta(seconds=0.5)
"""The most that a failed rank waits: the others should soon learn that it has ended."""


class GroupMaker(Protocol):
    """Finds groups and makes groups from a group, for the methods of ProcessGroup."""

    def find(self, name: str) -> ProcessGroup:
        """Return this process's group with this name."""

    def split(
        self,
        parent: ProcessGroup,
        ranks: Sequence[int],
        timeout: timedelta | None,
        opts: Any,
        group_name: str | None,
        group_desc: str | None,
        backend: str | None,
    ) -> ProcessGroup | None:
        """See `ProcessGroup.split_group`."""

    def merge(
        self,
        local: ProcessGroup,
        store: Store,
        size: int,
        timeout: timedelta,
        group_name: str | None,
        group_desc: str | None,
    ) -> ProcessGroup:
        """See `ProcessGroup.merge_remote_group`."""
        raise NotImplementedError


class ProcessGroup(TorchMethods, HookMethods, PrivateMethods):
    """Some ranks of the world that communicate, as one of them sees the group.

    `init_process_group`, `new_group` and similar functions make groups. Programs pass
    them as `group=` to the functions of the package. Ranks in its methods are ranks of
    the group. Any thread may use it, but its members must agree on the order of
    operations.

    Args:
        rank: this process's rank in the group.
        size: how many ranks the group has.

    Example:
        ```python
        pair = dist.new_group([0, 1])
        dist.all_reduce(array, group=pair)  # the package's functions
        pair.allreduce([array]).wait()  # torch's methods
        ```
    """

    group_name: str = ""
    """All members know it, and no other group of the world has it."""
    group_desc: str = "undefined"
    """Free text, for people."""
    bound_device_id: Any = None
    """What was passed as `device_id` when the group was made."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self._rank = rank
        self._size = size
        self._timeout = default_pg_timeout
        self._store: Store | None = None
        self.is_world = False
        self.union: Union | None = None
        """The merged world of the global ranks; None for ranks of the world."""
        self.reduce_order = "any"
        """See `NativeOptions`; groups made from this one inherit it."""
        self.backend = "undefined"
        self.config: BackendConfig | None = None
        self.global_ranks: tuple[int, ...] = ()

    def bind(
        self,
        options: CommunicatorOptions,
        config: BackendConfig,
        communicator: Communicator,
        maker: GroupMaker,
    ) -> None:
        """Give a new object its name, members and communicator.

        For code that makes groups, not for users of groups.
        """
        self.group_name = options.group_id
        self.global_ranks = tuple(options.global_ranks_in_group)
        self.config = config
        self._store = options.store
        self._maker = maker
        self._timeout = options.timeout
        self.communicator = communicator

    def __repr__(self) -> str:
        return (
            f"<ProcessGroup {self.group_name!r} ({self.group_desc}): rank {self._rank} "
            f"of {self._size}, {self.config}>"
        )

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks in the group."""
        return self._size

    def group_rank(self, global_rank: int) -> int:
        """Return the group rank of the process that is `global_rank` in the world.

        In the group of all ranks this is the same number, and it is not checked.

        Raises:
            ValueError: the process is not a member.
        """
        if self.is_world:
            return global_rank
        try:
            return self.global_ranks.index(global_rank)
        except ValueError:
            raise ValueError(
                f"Global rank {global_rank} is not part of group {self}, whose members "
                f"are {list(self.global_ranks)}"
            ) from None

    def global_rank(self, group_rank: int) -> int:
        """Return the world rank of the process that is `group_rank` in the group.

        In the group of all ranks this is the same number, and it is not checked.

        Raises:
            ValueError: there is no such rank.
        """
        if self.is_world:
            return group_rank
        if not 0 <= group_rank < self._size:
            raise ValueError(
                f"Group rank {group_rank} is not part of group {self}; it must be in "
                f"[0, {self._size})"
            )
        return self.global_ranks[group_rank]

    def name(self) -> str:
        """Return the name of the backend that the group was made with.

        A user's own class gives it by `getBackendName()`, as in torch.
        """
        own = getattr(self, "getBackendName", None)
        return self.backend if own is None else str(own())

    def get_backend(self, device: Any) -> Communicator:
        """Return the communicator that serves arrays of `device` in this group.

        `device` is a type or name ("cpu", "cuda:1") or a `torch.device`.

        Raises:
            RuntimeError: the group does not serve that device.
        """
        communicator = self.communicator
        while isinstance(communicator, HookedCommunicator | CheckedCommunicator):
            communicator = communicator.communicator
        kind = str(getattr(device, "type", device)).partition(":")[0]
        if isinstance(communicator, PerDeviceCommunicator):
            return communicator.serving(kind)
        assert self.config is not None, "bind() comes first"
        served = self.config.get_device_backend_map()
        if kind not in served:
            raise RuntimeError(
                f"No backend type associated with device type {kind}: group "
                f"{self.group_name!r} serves {', '.join(served)}"
            )
        return communicator

    def _get_backend(self, device: Any) -> DeviceBackend:
        """Return what serves arrays of `device`, with the methods that torch has.

        Raises:
            RuntimeError: the group does not serve that device.
        """
        communicator = self.get_backend(device)
        kind = str(getattr(device, "type", device)).partition(":")[0]
        assert self.config is not None, "bind() comes first"
        name = self.config.get_device_backend_map()[kind]
        return DeviceBackend(self, communicator, name)

    def get_group_store(self) -> Store:
        """Return the world's store with the group's own prefix.

        Raises:
            ValueError: the group was destroyed.
        """
        if self._store is None:
            raise ValueError(
                f"group {self.group_name!r} has no store: it was destroyed"
            )
        return self._store

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by name, also when an object that holds it is deep-copied.
        return self._maker.find, (self.group_name,)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations without a limit of their own."""
        limit = as_timedelta(timeout)
        self.communicator.set_timeout(limit)
        self._timeout = limit

    @property
    def timeout(self) -> timedelta:
        """The time limit of operations without a limit of their own."""
        return self._timeout

    def abort(self, reason: str = "") -> None:
        """Break the group for every member; ranks that wait in it get an error at once.

        Every further operation raises `DistBackendError`. Any thread may call this.
        """
        self.communicator.abort(reason or "abort() was called")

    def shutdown(self, grace: timedelta = LONGEST_GOODBYE) -> None:
        """Finish operations under way and leave; then the group cannot be used.

        Queued operations have `grace`, but at most the group's timeout, to finish, and
        so have peers to receive messages. Then they fail. `destroy_process_group` calls
        it. A second call does nothing.

        Raises:
            CollectiveTimeoutError: peers have not received messages of this rank.
            RankFailedError: a peer ended before it received a message for which nobody
                waited.
        """
        self.communicator.close(min(to_seconds(self._timeout), to_seconds(grace)))
        self._store = None

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[Any] | None = None,
    ) -> ProcessGroup | None:
        """Make a group of some `ranks` of this one; None if this rank is not in it.

        The call sends no message, so only the members need to make it. `opts` are
        options for the backend. With `device_types` the group serves only these types.

        Raises:
            ValueError: a rank is out of range or comes twice, this group does not serve
                a device type, or there is already a group with this name.
        """
        backend = None if device_types is None else self._serving_only(device_types)
        return self._maker.split(
            self, ranks, timeout, opts, group_name, group_desc, backend
        )

    def merge_remote_group(
        self,
        store: Store,
        size: int,
        timeout: timedelta = default_pg_timeout,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> ProcessGroup:
        """Join this group with groups of other worlds to one group of `size` ranks.

        Every rank of every group calls it with the same `store`. All groups must reach
        the store, and it may serve only one merge at a time. The call returns when all
        have come. The ranks of each old group are consecutive and keep their order. The
        ranks of the group that came first have the lowest numbers.

        In the new group and in groups that are split from it, `src` and `dst` are ranks
        of the new group. Every operation works on it, and it can be split and shrunk; a
        group that `shrink_group` makes from it keeps these numbers. The old groups
        stay.

        If the merge fails, it fails on every rank that has come, and may be tried
        again.

        Raises:
            DistStoreError: some ranks, which the message names, did not come within
                `timeout`; or a rank that came gave up or could not use the store.
            ValueError: the groups have more than `size` ranks in total or pass
                different sizes, or there is already a group with this name.
        """
        return self._maker.merge(self, store, size, timeout, group_name, group_desc)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """See `allhands.monitored_barrier`."""
        try:
            self.communicator.barrier(timeout, False)
        except (CollectiveTimeoutError, RankFailedError) as error:
            if "is broken since" in str(error):  # an earlier call broke the group
                raise
            absent = sorted(self.global_rank(rank) for rank in error.ranks)
            one_or_all = absent if wait_all_ranks else absent[:1]
            ranks = f"Rank{'s' * (len(one_or_all) > 1)} {str(one_or_all)[1:-1]}"
            limit = to_seconds(self.timeout if timeout is None else timeout)
            named = type(error)(
                f"[Rank {self.global_rank(self._rank)}]: {ranks} failed to pass "
                f"monitoredBarrier in {limit * 1000:.0f} ms\n Original exception: \n"
                f"{error}"
            )
            named.ranks = error.ranks
            raise named from error

    def rank_meant(
        self, rank: int | None, group_rank: int | None, default: int | None = None
    ) -> int:
        """Return the group rank that a caller names by a global or by a group rank.

        If the caller gives neither, it is the global rank `default`.

        Raises:
            ValueError: both ranks are given, or none, or the global rank is not a
                member.
            TypeError: the rank is not an int.
        """
        if type(rank) is int and group_rank is None and self.is_world:
            return rank  # the usual case
        if group_rank is None:
            meant = default if rank is None else rank
        elif rank is None:
            meant = group_rank
        else:
            raise ValueError(
                f"{called_operation()}: Can't specify both group_rank and global_rank: "
                f"{_EITHER}"
            )
        if meant is None:
            raise ValueError(
                f"{called_operation()}: Must specify global_rank or group_rank: "
                f"{_EITHER}"
            )
        try:
            meant = index(meant)
        except TypeError:
            raise TypeError(
                f"{called_operation()}: a rank must be an int, got {meant!r}"
            ) from None
        if self.is_world or group_rank is not None:
            return meant
        return self.group_rank(meant)

    def peer_meant(self, role: str, rank: int | None, group_rank: int | None) -> int:
        """Return `rank_meant`, which must be a member.

        Raises:
            ValueError: the rank is not a member; or see `rank_meant`.
            TypeError: the rank is not an int.
        """
        peer = self.rank_meant(rank, group_rank)
        if not 0 <= peer < self._size:
            raise ValueError(
                f"{called_operation()}: Invalid {role} rank: {peer} is not in group "
                f"{self.group_name!r}; it must be in [0, {self._size})"
            )
        return peer

    def _serving_only(self, device_types: Sequence[Any]) -> str:
        """Return this group's "device:backend" pairs for these devices."""
        assert self.config is not None, "bind() comes first"
        by_device = self.config.get_device_backend_map()
        devices = [str(getattr(kind, "type", kind)) for kind in device_types]
        for device in devices:
            if device not in by_device:
                raise ValueError(
                    f"split_group: group {self.group_name!r} does not serve device "
                    f"type {device!r}; it was made with {self.config}"
                )
        return ",".join(f"{device}:{by_device[device]}" for device in devices)


_EITHER = "pass src or dst, a rank of the world, or else group_src or group_dst"
