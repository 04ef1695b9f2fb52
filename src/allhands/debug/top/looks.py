"""Look: what all ranks of a job do at one moment, and which rank waits for which.

The ranks continue while they are read, so they are read twice. An operation that is the
same both times was under way at the moment between the two. A rank that had not come to
it at the second reading had not come at that moment. Operations that ended between the
readings show no waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from allhands.debug.top.memory import GroupView, Operation
from allhands.debug.whom import Whom, awaited_in

__all__ = ["Look", "Views", "is_communicating"]

Views = Mapping[int, Collection[GroupView]]
"""By world rank."""


def is_communicating(groups: Collection[GroupView]) -> bool:
    """Return whether a thread of the rank is in an operation, or waits for one."""
    return any(
        group.num_waiting or any(not each.is_async for each in group.under_way)
        for group in groups
    )


@dataclass(frozen=True)
class Look:
    """All ranks of a job at one moment, by world rank. Immutable."""

    views: Views
    waits: Mapping[int, frozenset[int]]
    """For each waiting rank, the ranks that have not come. Never empty."""
    culprits: frozenset[int]
    """The ranks for which others wait while they wait for no rank."""

    @classmethod
    def of(
        cls, first: Views, second: Views, halted: Collection[int] = frozenset()
    ) -> Look:
        """Make a look from two readings of all ranks; `halted` are stopped or dead.

        Halted ranks wait for no rank, and do not continue the operations that they have
        begun.
        """
        meeting = _Meeting(second, halted)
        waits = {
            rank: awaited
            for rank in first
            if rank not in halted
            if (awaited := meeting.awaited_by(rank, first[rank]))
        }
        wanted = frozenset().union(*set(waits.values()))
        return cls(first, waits, wanted - waits.keys() or wanted)


class _Meeting:
    """How far the ranks had come at the second reading."""

    def __init__(self, views: Views, halted: Collection[int]) -> None:
        self._halted = halted
        self._groups: dict[int, dict[int, int]] = {}
        """By the key of a group: the world rank of each group rank."""
        self._views: dict[tuple[int, int], GroupView] = {}
        for rank, groups in views.items():
            for group in groups:
                self._groups.setdefault(group.key, {})[group.rank] = rank
                self._views[group.key, rank] = group
        self._late: dict[tuple[int, int], frozenset[int]] = {}

    def awaited_by(self, rank: int, groups: Collection[GroupView]) -> frozenset[int]:
        """Return the ranks for which this rank waits; `groups` is its first reading."""
        found = [
            awaited
            for group in groups
            for operation in self._steady(rank, group)
            if (awaited := self._awaited_in(rank, group, operation))
        ]
        return frozenset[int]().union(*found) - {rank} if found else frozenset()

    def _steady(self, rank: int, group: GroupView) -> Iterator[Operation]:
        """Yield the awaited operations that the rank was in at both readings."""
        again = self._views.get((group.key, rank))
        if again is None:
            return
        for operation in group.under_way:
            is_waited_for = not operation.is_async or group.num_waiting > 0
            if is_waited_for and operation in again.operations:
                yield operation

    def _awaited_in(
        self, rank: int, group: GroupView, operation: Operation
    ) -> frozenset[int]:
        if operation.is_message:
            return self._awaited_by_message(rank, group, operation)
        late = self._late_for(group.key, operation.number)
        members = self._groups[group.key]
        root = members.get(operation.partner)
        whom = awaited_in(operation.op, rank == root)
        if whom is Whom.ALL:
            return late
        if whom is Whom.LOWER:
            return late & {members[n] for n in members if n < group.rank}
        return late & {root} if whom is Whom.ROOT else frozenset()

    def _late_for(self, key: int, number: int) -> frozenset[int]:
        """Computed once for all ranks of the collective; per rank it would take n^2."""
        if (key, number) not in self._late:
            self._late[key, number] = frozenset(
                rank
                for rank in self._groups[key].values()
                if not self._has_come(key, rank, number)
            )
        return self._late[key, number]

    def _has_come(self, key: int, rank: int, number: int) -> bool:
        group = self._views[key, rank]
        if rank in self._halted and any(
            each.number <= number and not each.is_message for each in group.under_way
        ):
            return False
        return group.num_collectives >= number

    def _awaited_by_message(
        self, rank: int, group: GroupView, operation: Operation
    ) -> frozenset[int]:
        """Return the peer, if it is known and has not begun the other half."""
        peer = self._groups[group.key].get(operation.partner)
        if peer is None or peer == rank:
            return frozenset()
        half = "recv" if operation.op == "send" else "send"
        has_come = peer not in self._halted and any(
            each.op == half and each.partner in (group.rank, -1)
            for each in self._views[group.key, peer].under_way
        )
        return frozenset() if has_come else frozenset({peer})
