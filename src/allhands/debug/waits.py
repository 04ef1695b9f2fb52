"""Waits: which rank waits for which, according to the records.

A rank waits in an operation that has not ended, or that has just failed because another
rank did not come. The rank for which it waits follows from the error, from the other
ranks' records of the same operation, or, for a message, from its peer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from allhands.debug.dumps import Dump, Entry, Group
from allhands.debug.whom import awaited_in

__all__ = ["BY_WAITING", "Wait", "cycle", "failed_by_waiting", "waits"]

BY_WAITING = ("CollectiveTimeoutError", "RankFailedError")
"""Failures that show that a rank waited."""
_Reached: TypeAlias = Mapping[int, Mapping[str, int]]
"""How far each rank with a record has come; see `_reached`."""


@dataclass(frozen=True)
class Wait:
    """One rank that waits in an operation for others."""

    rank: int
    entry: Entry
    group: Group
    awaited: frozenset[int]
    """World ranks. If something is known of some of them, only those."""
    is_known: bool
    """False: these are only ranks without a record."""

    def __str__(self) -> str:
        where = f" ({self.entry.place})" if self.entry.place else ""
        return f"{_numbered(self.entry)} on group {self.group}{where}"


def _numbered(entry: Entry) -> str:
    return str(entry) if entry.is_message else f"{entry.op} #{entry.number}"


def waits(dumps: Mapping[int, Dump], least_seconds: float) -> dict[int, Wait]:
    """Return the wait of each waiting rank, by rank.

    A rank counts if it failed by waiting, or has waited for `least_seconds`.
    """
    reached = {rank: _reached(dump) for rank, dump in dumps.items()}
    found = (_wait_of(dump, reached, least_seconds) for dump in dumps.values())
    return {wait.rank: wait for wait in found if wait is not None}


def _reached(dump: Dump) -> dict[str, int]:
    """Return the last collective that the rank has issued, by group."""
    numbers: dict[str, int] = {}
    for entry in dump.entries:
        if not entry.is_message:
            before = numbers.get(entry.group, entry.number)
            numbers[entry.group] = max(before, entry.number)
    return numbers


def _wait_of(dump: Dump, reached: _Reached, least: float) -> Wait | None:
    failed = failed_by_waiting(dump)
    if failed is not None:
        assert dump.failure is not None
        # The peer may wait, too, if the error names the rank that gave up first.
        if failed.is_message and failed.partner >= 0:
            return _of_entry(dump, failed, reached)
        group = dump.group_of(failed.group)
        told = frozenset(dump.failure.ranks) - {dump.rank}
        if told:
            return Wait(dump.rank, failed, group, told, True)
        return _of_entry(dump, failed, reached)
    main = dump.main_thread
    is_in_call = main is None or bool(main.inside)
    for entry in dump.entries:
        is_waited_for = not entry.is_async or entry.is_waited_for or is_in_call
        if entry.is_under_way and is_waited_for and dump.age(entry) >= least:
            wait = _of_entry(dump, entry, reached)
            if wait is not None:
                return wait
    return None


def failed_by_waiting(dump: Dump) -> Entry | None:
    """Return the operation that failed because another rank did not come, if any."""
    failure = dump.failure
    if failure is None or failure.type not in BY_WAITING:
        return None
    failed = [e for e in dump.entries if e.state == "failed"]
    if not failed:
        return None
    last = failed[-1]
    if last.is_message:  # others may have failed along with the one that took too long
        named = [e for e in failed if _peer(dump, e) in failure.ranks]
        last = named[-1] if named else last
    return last if last.frames else replace(last, frames=failure.frames)


def _peer(dump: Dump, entry: Entry) -> int | None:
    """Return the world rank of a message's peer; None if it has none."""
    ranks = dump.group_of(entry.group).ranks
    is_one = entry.is_message and 0 <= entry.partner < len(ranks)
    return ranks[entry.partner] if is_one else None


def _of_entry(dump: Dump, entry: Entry, reached: _Reached) -> Wait | None:
    group = dump.group_of(entry.group)
    others = [rank for rank in group.ranks if rank != dump.rank]
    if entry.is_message:
        peer = _peer(dump, entry)
        if peer is None:
            return None  # any source: no particular rank
        return Wait(dump.rank, entry, group, frozenset({peer}), True)
    # The rank could leave without the other ranks, but these may pass on data that it
    # needs.
    for some in (_awaited(dump.rank, entry, group), others):
        late = [r for r in some if r in reached and not _has_come(reached[r], entry)]
        if late:
            return Wait(dump.rank, entry, group, frozenset(late), True)
        unknown = frozenset(rank for rank in some if rank not in reached)
        if unknown:
            return Wait(dump.rank, entry, group, unknown, False)
    return None


def _awaited(rank: int, entry: Entry, group: Group) -> list[int]:
    """Return the ranks for which the rank waits first in a collective."""
    at = entry.partner
    root = group.ranks[at] if 0 <= at < len(group.ranks) else None
    if rank not in group.ranks:
        return []
    whom = awaited_in(entry.op, root == rank)
    return [each for each in whom.among(group.ranks, rank, root) if each != rank]


def _has_come(numbers: Mapping[str, int], entry: Entry) -> bool:
    """Return whether a rank that has come so far has issued this collective."""
    return entry.group in numbers and numbers[entry.group] >= entry.number


def cycle(found: Mapping[int, Wait], dumps: Mapping[int, Dump]) -> Sequence[Wait]:
    """Return the shortest cycle of ranks that wait for each other; empty if none."""
    best: list[Wait] = []
    for start in sorted(found):
        ring = _ring(start, found, dumps)
        if ring and (not best or len(ring) < len(best)):
            best = ring
    return best


def _ring(
    start: int, found: Mapping[int, Wait], dumps: Mapping[int, Dump]
) -> list[Wait]:
    """Return the shortest way from `start` back to it."""
    ways: list[list[int]] = [[start]]
    seen: set[int] = set()
    while ways:
        way = ways.pop(0)
        wait = found[way[-1]]
        for rank in sorted(wait.awaited):
            if not wait.is_known or not _waits_meanwhile(rank, wait, found, dumps):
                continue
            if rank == start:
                return [found[member] for member in way]
            if rank not in seen:
                seen.add(rank)
                ways.append([*way, rank])
    return []


def _waits_meanwhile(
    rank: int, wait: Wait, found: Mapping[int, Wait], dumps: Mapping[int, Dump]
) -> bool:
    """Return whether `rank` waited before the rank that waits for it gave up."""
    other = found.get(rank)
    if other is None or other.entry.created > dumps[wait.rank].time:
        return False
    return not _is_same(wait.entry, other.entry)


def _is_same(one: Entry, other: Entry) -> bool:
    are_collectives = not (one.is_message or other.is_message)
    return are_collectives and one.group == other.group and one.number == other.number
