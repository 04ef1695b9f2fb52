"""Hearsay: what errors of ranks that waited tell of the ranks for which they waited.

A rank that gives up asks the others what they are doing, and its error has the answer.
So the other records still tell something of a rank whose record is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from allhands.debug.dumps import Dump, Failure
from allhands.debug.waits import BY_WAITING

__all__ = ["BY_WORLD", "CYCLE", "Hearsay", "reason_in", "told_cycle", "told_of"]

CYCLE = "cycle of waits: "
"""How the reason begins if ranks wait for each other."""
BY_WORLD = " (ranks of the world)"
"""What follows "why" where the rest of the error has the ranks of a group."""
_REASON = re.compile(rf"\bwhy(?:{re.escape(BY_WORLD)})?: (.*)")
# Of ranks up to MOST_RANKS; `int` refuses thousands of digits.
_LINK = re.compile(r"\brank (\d{1,7}),? (?:which )?waits in ")
_OTHERWISE = re.compile(
    r"rank (\d{1,7})(?:: | is in | has not come| waited in | (came too late))"
)
_END = re.compile(r"\brank \d+ \(pid \d+\) (died|left the group|ended by .*)")
_ENDED_BY = "ended by "


class Hearsay(NamedTuple):
    """What other ranks tell of one rank, or of those in a cycle."""

    kind: Literal["cycle", "dead", "exception", "late", "stuck"]
    ranks: tuple[int, ...]
    """World ranks."""
    text: str


def reason_in(text: str) -> str:
    """Return the reason that the text of an error gives; empty if it gives none."""
    told = _REASON.search(text)
    return "" if told is None else told[1]


def told_cycle(dumps: Mapping[int, Dump], unseen: Iterable[int]) -> Hearsay | None:
    """Return a cycle of waits that has some of these ranks; None if none is told."""
    for dump, failure in _failures(dumps):
        reason = reason_in(failure.message)
        ranks = tuple(sorted({int(rank) for rank in _LINK.findall(reason)}))
        is_of_world = all(rank < dump.world_size for rank in ranks)
        if reason.startswith(CYCLE) and is_of_world and set(ranks) & set(unseen):
            return Hearsay("cycle", ranks, reason)
    return None


def told_of(rank: int, dumps: Mapping[int, Dump]) -> Hearsay | None:
    """Return what `rank` did instead of coming; None if nothing is told."""
    for _, failure in _failures(dumps):
        for part in reason_in(failure.message).split("; "):
            told = _OTHERWISE.match(part)
            if told is not None and int(told[1]) == rank:
                return Hearsay("late" if told[2] else "stuck", (rank,), part)
        end = _END.search(failure.message)
        if end is not None and failure.ranks == (rank,):
            text = f"rank {rank} {end[1]}".split("; ")[0]
            is_exception = end[1].startswith(_ENDED_BY)
            return Hearsay("exception" if is_exception else "dead", (rank,), text)
    return None


def _failures(dumps: Mapping[int, Dump]) -> list[tuple[Dump, Failure]]:
    """Return the records of ranks that failed by waiting, the earliest first."""
    found = [
        (dump, dump.failure)
        for dump in sorted(dumps.values(), key=lambda dump: dump.time)
        if dump.failure is not None
    ]
    return [each for each in found if each[1].type in BY_WAITING]
