"""Stragglers: ranks for which the others wait repeatedly, according to the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from allhands.debug.dumps import Dump, Group
from allhands.debug.ended_collectives import (
    EndedCollective,
    arrivals_of,
    ended_collectives,
)

__all__ = ["Straggler", "met_in_groups", "worst_straggler"]

# A rank is no straggler if it is last only a little more often than others, or later by
# no more than a scheduler causes.
_LEAST_MET = 20
_MOST_MET = 200
_LEAST_SHARE_OF_CALLS = 0.8
_LEAST_SHARE_OF_TIME = 0.2
_LEAST_LATENESS = 0.002  # seconds, the median
_LEAST_WAITED = 0.3  # seconds, of all collectives together


@dataclass(frozen=True)
class Straggler:
    """A rank for which the others of a group wait. Immutable."""

    rank: int
    group: Group
    times_last: int
    num_met: int
    lateness: float
    """The median of the seconds by which it came after the rank before it."""
    share: float
    """The share of the time that the others waited for it."""

    def __str__(self) -> str:
        return (
            f"rank {self.rank} is slow: last in {self.times_last} of {self.num_met} "
            f"collectives on group {self.group}, {self.lateness * 1e3:.1f} ms after "
            f"the others, who waited for it {self.share:.0%} of the time"
        )


def met_in_groups(
    dumps: Mapping[int, Dump], most: int | None = None
) -> Iterator[tuple[Group, list[EndedCollective]]]:
    """Yield the groups for which all ranks have a record, with their last collectives.

    With `most`, each group has at most this number of collectives.
    """
    by_rank = {rank: arrivals_of(dump) for rank, dump in dumps.items()}
    groups = {
        name: told for dump in dumps.values() for name, told in dump.groups.items()
    }
    for name, group in groups.items():
        if len(group.ranks) > 1 and all(
            rank in dumps and name in dumps[rank].groups for rank in group.ranks
        ):
            arrivals = {rank: by_rank[rank].get(name, []) for rank in group.ranks}
            hosts = {rank: dumps[rank].host for rank in group.ranks}
            yield group, ended_collectives(arrivals, hosts, most)


def worst_straggler(dumps: Mapping[int, Dump]) -> Straggler | None:
    """Return the straggler for which others wait most; None if there is none."""
    found = [_straggler(group, met) for group, met in met_in_groups(dumps, _MOST_MET)]
    return max(
        (each for each in found if each is not None),
        key=lambda straggler: straggler.share,
        default=None,
    )


def _straggler(group: Group, met: Sequence[EndedCollective]) -> Straggler | None:
    if len(met) < _LEAST_MET:
        return None
    [(rank, times)] = Counter(meeting.last for meeting in met).most_common(1)
    late = [meeting for meeting in met if meeting.last == rank]
    waited = _seconds_of_waiting(late)
    period = max(1, met[-1].last_came - met[0].first_came) / 1e9
    lateness = median(meeting.lateness for meeting in late)
    straggler = Straggler(rank, group, times, len(met), lateness, waited / period)
    is_one = (
        times >= _LEAST_SHARE_OF_CALLS * len(met)
        and straggler.lateness >= _LEAST_LATENESS
        and straggler.share >= _LEAST_SHARE_OF_TIME
        and waited >= _LEAST_WAITED
    )
    return straggler if is_one else None


def _seconds_of_waiting(late: Sequence[EndedCollective]) -> float:
    """Return the seconds in which somebody waited in one of these collectives.

    Ranks may wait in several at a time, which were begun with `async_op=True`.
    """
    waited, until = 0.0, float("-inf")
    for meeting in sorted(late, key=lambda meeting: meeting.last_came):
        end = meeting.last_came / 1e9
        waited += end - max(until, end - meeting.lateness)
        until = end
    return waited
