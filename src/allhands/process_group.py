"""ProcessGroup: some ranks of the world that communicate, as one of them sees it.

It knows who its members are and which communicator of a backend serves an array; the
functions of `collectives` and `reductions` hand each operation to that. torch's methods
for operations come from `TorchSpelling`. Ranks in its methods are ranks of the group. A
group is made by `init_process_group` or `new_group`, which bind it; a backend of a
user's own may derive from it and override torch's methods.

Thread-safe, but the members must agree on the order of operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol, cast

from allhands.arrays import Array, device_of
from allhands.backend import BackendConfig
from allhands.communicator import Communicator, CommunicatorOptions
from allhands.errors import CollectiveTimeoutError, RankFailedError
from allhands.options import default_pg_timeout, to_seconds
from allhands.posting import Posting
from allhands.store import Store
from allhands.torch_spelling import TorchSpelling
from allhands.work import Work

__all__ = ["LONGEST_GOODBYE", "GroupMaker", "ProcessGroup"]

LONGEST_GOODBYE = timedelta(seconds=10)
"""Leaving a group waits no longer, however long the group's operations may take: what
is under way when everybody leaves takes milliseconds, unless a peer will never come."""


class GroupMaker(Protocol):
    """What finds groups and makes them out of a group, for its methods."""

    def find(self, name: str) -> ProcessGroup:
        """The group of this process that is called `name`."""

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


class ProcessGroup(TorchSpelling):
    """Some ranks of the world that communicate, as one of them sees it.

    Made by `init_process_group`, `new_group` and their kin, and passed as `group=` to
    the functions of the package. Ranks in its methods are ranks of the group. Any
    thread may use it, but its members must agree on the order of operations.

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
    """Known to all members and no other group of the world's."""
    group_desc: str = "undefined"
    """Free text, for people."""
    bound_device_id: Any = None
    """What was passed as `device_id` when the group was made."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size
        self._seconds = to_seconds(default_pg_timeout)
        self._communicators: dict[str, Communicator] = {}
        self._only: Communicator | None = None
        self._store: Store | None = None
        self.is_world = False
        self.is_merged = False
        """Whether it has ranks of other worlds, see `merge_remote_group`."""
        self.backend = "undefined"
        self.config: BackendConfig | None = None
        self.global_ranks: tuple[int, ...] = ()

    def bind(
        self,
        options: CommunicatorOptions,
        config: BackendConfig,
        by_name: dict[str, Communicator],
        maker: GroupMaker,
    ) -> None:
        """Make a new object a group: its name, members and communicators.

        For whoever makes groups, not for users of them.
        """
        self.group_name = options.group_id
        self.global_ranks = tuple(options.global_ranks_in_group)
        self.config = config
        self._store = options.store
        self._maker = maker
        self._communicators = {
            device: by_name[name]
            for device, name in config.get_device_backend_map().items()
            if name in by_name
        }
        if len(by_name) == 1:
            self._only = next(iter(by_name.values()))
        self.set_timeout(options.timeout)

    def __repr__(self) -> str:
        return (
            f"<ProcessGroup {self.group_name!r} ({self.group_desc}): rank {self._rank} "
            f"of {self._size}, {self.config}>"
        )

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return self._size

    def group_rank(self, global_rank: int) -> int:
        """The rank here of the process that is `global_rank` in the world.

        In the group of all ranks it is the same number, which is not checked.

        Raises:
            ValueError: that process is not a member.
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
        """The rank in the world of the process that is `group_rank` here.

        In the group of all ranks it is the same number, which is not checked.

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
        """The name of the backend that the group was made with."""
        return self.backend

    def get_group_store(self) -> Store:
        """The world's store, with a prefix of the group's own.

        Raises:
            ValueError: the group was destroyed.
        """
        if self._store is None:
            raise ValueError(
                f"group {self.group_name!r} has no store: it was destroyed"
            )
        return self._store

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled, and deep-copied with what holds it, as its name.
        return self._maker.find, (self.group_name,)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations that are given none."""
        self._seconds = to_seconds(timeout)

    @property
    def timeout(self) -> timedelta:
        """The time limit of operations that are given none."""
        return timedelta(seconds=self._seconds)

    def abort(self, reason: str = "") -> None:
        """Break the group for every member; whoever waits in it gets an error at once.

        Every further operation raises `DistBackendError`. From any thread.
        """
        for communicator in set(self._communicators.values()):
            communicator.abort(reason or "abort() was called")

    def shutdown(self, grace: timedelta = LONGEST_GOODBYE) -> None:
        """Finish what is under way and leave; the group cannot be used after it.

        Queued operations get `grace` to finish, and messages to be received, but no
        more than the group's timeout; then they fail. `destroy_process_group` calls it.
        A second call does nothing.

        Raises:
            CollectiveTimeoutError: peers have not received messages of this rank.
        """
        seconds = min(self._seconds, to_seconds(grace))
        for communicator in set(self._communicators.values()):
            communicator.close(seconds)
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
        """Make a group of some `ranks` of this one; None where this rank is not in it.

        It sends no message, so only the members need to call it. `opts` are for the
        backend; with `device_types` the group serves only those.

        Raises:
            ValueError: a rank is out of range or comes twice, this group does not serve
                a device type, or there is a group of that name.
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

        Every rank of every group calls it with the same `store`, one that all of them
        reach and that serves one merge at a time. It returns when all have come. The
        ranks of each old group follow each other in their old order; first come the
        ranks of the group that came first.

        For the new group `src` and `dst` are its own ranks. It can be used by every
        operation, but not be split or shrunk. The old groups stay.

        Raises:
            DistStoreError: some ranks did not come within `timeout`; names them.
            ValueError: the groups have more than `size` ranks together, or there is a
                group of that name.
        """
        return self._maker.merge(self, store, size, timeout, group_name, group_desc)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """See `allhands.monitored_barrier`."""
        limit = self.limit(timeout)
        try:
            self.any_communicator().barrier(limit, False)
        except (CollectiveTimeoutError, RankFailedError) as error:
            absent = sorted(self.global_rank(rank) for rank in error.ranks)
            one_or_all = absent if wait_all_ranks else absent[:1]
            ranks = f"Rank{'s' * (len(one_or_all) > 1)} {str(one_or_all)[1:-1]}"
            named = type(error)(
                f"[Rank {self.global_rank(self._rank)}]: {ranks} failed to pass "
                f"monitoredBarrier in {limit * 1000:.0f} ms\n Original exception: \n"
                f"{error}"
            )
            named.ranks = error.ranks
            raise named from error

    def communicator(self, device: str) -> Communicator:
        """The communicator that serves arrays on `device` ("cpu", "cuda", ...).

        Raises:
            RuntimeError: the group has no backend for it.
        """
        try:
            return self._communicators[device]
        except KeyError:
            raise RuntimeError(
                f"No backend type associated with device type {device}: group "
                f"{self.group_name!r} was made with {self.config}"
            ) from None

    def check_peer(self, role: str, peer: int | None) -> None:
        """Refuse a peer that is no other rank of the group; None, for any, is fine."""
        if peer is None:
            return
        if not 0 <= peer < self._size:
            raise ValueError(
                f"Invalid {role} rank: {peer} is not in group {self.group_name!r}; it "
                f"must be in [0, {self._size})"
            )
        if peer == self._rank:
            raise ValueError(
                f"Invalid {role} rank: {role} rank should not be the same as the rank "
                f"of the current process ({peer})."
            )

    def check_root(self, operation: str, root: int) -> None:
        """Refuse a root that is no rank of the group."""
        if not 0 <= root < self._size:
            raise RuntimeError(
                f"{operation}: invalid root rank: {root}; it must be in "
                f"[0, {self._size})"
            )

    def check_list(self, operation: str, which: str, tensors: list[Array]) -> None:
        """Refuse an "input" or "output" list that has not one entry per rank."""
        if len(tensors) != self._size:
            raise RuntimeError(
                f"{operation}: invalid {which} tensor list (expected length "
                f"{self._size}, got {len(tensors)}): {which} list size should be "
                f"{self._size}, same as size of the process group"
            )

    def limit(self, timeout: timedelta | None) -> float:
        """The seconds that an operation with this `timeout` argument may take."""
        return self._seconds if timeout is None else to_seconds(timeout)

    def serving(self, array: Array) -> Communicator:
        """The communicator that serves `array`, which lies on some device.

        Raises:
            RuntimeError: the group has no backend for that device.
            TypeError: `array` is no array.
        """
        return self._only or self.communicator(device_of(array))

    @contextmanager
    def posting(self, works: list[Work]) -> Iterator[None]:
        """Within the block, post every collective and add its `Work` to `works`."""
        before = self._only, self._communicators
        self._communicators = {
            device: cast(Communicator, Posting(communicator, works))
            for device, communicator in self._communicators.items()
        }
        if self._only is not None:
            self._only = cast(Communicator, Posting(self._only, works))
        try:
            yield
        finally:
            self._only, self._communicators = before

    def any_communicator(self) -> Communicator:
        """One that serves operations without arrays."""
        return self._only or next(iter(self._communicators.values()))

    def _serving_only(self, device_types: Sequence[Any]) -> str:
        """The part of this group's "device:backend" pairs for these devices."""
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
