"""ParentGroup: a group from which other groups are made, alone or with others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed
from torch._C import _distributed_c10d as c10d

from allhands.backends.communicator import Communicator
from allhands.groups.making import hashed
from allhands.groups.merge import find_offset
from allhands.store.torch_store import TorchStore
from allhands.torch.identity import GroupIdentity
from allhands.torch.uncompiled import uncompiled

__all__ = ["ParentGroup"]


@uncompiled
class ParentGroup(GroupIdentity):
    """A group that can be split, and merged with other groups."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(store, rank, size)
        self._timeout = timeout
        self.options = c10d.Backend.Options(self.getBackendName(), timeout)
        """For code that takes the group for its backend; torch also writes here."""
        self._world_ranks: Sequence[int] = ()
        """The members' ranks in torch's world; empty if unknown."""
        self._splits: Counter[tuple[int, ...]] = Counter()

    @property
    def timeout(self) -> timedelta:
        """The limit of operations without a limit of their own."""
        return self._timeout

    def part(
        self, store: Any, ranks: list[int], timeout: timedelta, name: str
    ) -> ParentGroup | None:
        """Make a group of `ranks`, in this order; None if this rank is not among them.

        Each of the ranks calls it. `store` is for the new group alone.

        Raises:
            ValueError: there are no ranks, one is given twice, or one is not in this
                group.
        """
        if not ranks or len({*ranks} & {*range(self.size())}) != len(ranks):
            raise ValueError(
                f"group {self._group_name!r} has ranks 0 to {self.size() - 1}; a part "
                f"of it has some of these, each once, got {ranks}"
            )
        if self.rank() not in ranks:
            return None
        rank, size = ranks.index(self.rank()), len(ranks)
        part = self._like_this(store, rank, size, timeout)
        if self._world_ranks:
            part._world_ranks = [self._world_ranks[each] for each in ranks]
        part._set_group_name(name)
        return part

    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ParentGroup | None:
        """Make a `part` with its own name and store; each of `ranks` calls it.

        Other ranks may call it at the same time for other groups. If `group_name` is
        given, it must differ from the names of all other parts.
        """
        key = tuple(ranks)
        self._splits[key] += 1
        alike = f"{hashed(key)}:{self._splits[key]}"
        name = group_name or f"{self._group_name}:split:{alike}"
        store = torch.distributed.PrefixStore(f"{name}/", self._torch_store)
        group = self.part(store, list(ranks), timeout or self._timeout, name)
        if group is not None:
            group._set_group_desc(group_desc or f"{self._group_desc}:split")
        return group

    def merge_remote_group(
        self,
        store: Any,
        size: int,
        timeout: timedelta | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> ParentGroup:
        """Join this group with groups of other worlds to one group of `size` ranks.

        Every rank of every group calls it with the same `store`. All groups must reach
        the store, and it may serve only one merge at a time. The ranks of each old
        group are consecutive and keep their order. The ranks of the group that came
        first have the lowest numbers. The call returns when all groups have come. The
        old groups stay. If the merge fails, it fails on every rank that has come, and
        may be tried again.

        Raises:
            DistStoreError: some groups did not come within `timeout`; a rank that came
                gave up or could not use the store.
            ValueError: the groups have more than `size` ranks in total, or pass
                different sizes.
        """
        limit = timeout or self._timeout
        ours, own = TorchStore(store), (self.rank(), self.size())
        offset = find_offset(
            self._communicator, ours, *own, size, limit, self._group_name
        )
        met = torch.distributed.PrefixStore(f"merge/{offset.attempt}/", store)
        group = self._like_this(met, offset.first + self.rank(), size, limit)
        group._set_group_name(group_name or f"merged:{offset.attempt}")
        group._set_group_desc(group_desc or "merged")
        return group

    @property
    def _communicator(self) -> Communicator:
        raise NotImplementedError  # the subclass has one

    def _like_this(
        self, store: Any, rank: int, size: int, timeout: timedelta
    ) -> ParentGroup:
        raise NotImplementedError  # the subclass implements it
