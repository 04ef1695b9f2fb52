"""Clocks: how far the clock of each host is ahead of another's, judging by operations.

No rank leaves certain collectives before all have come. So the time on one host's clock
when its last rank came is not later than the time on another host's clock when its
first rank left. This bounds the difference of the two clocks from both sides. Within
these bounds, the measured ends of a collective count as one moment: all ranks learn of
the end at once, except for the latency between hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

__all__ = ["Visit", "clocks"]


class Visit(NamedTuple):
    """A host in a collective that no rank leaves before all have come.

    Times are nanoseconds since 1970 by the host's clock; 0 if unknown.
    """

    came: int
    """When its last rank came."""
    left: int
    """The latest time at which its first rank had left."""
    ended: int
    """When its first rank left."""


def clocks(
    hosts: Iterable[str], visits: Sequence[Mapping[str, Visit]]
) -> dict[str, int]:
    """Return how far each host's clock is ahead of the first host's, in nanoseconds.

    Args:
        hosts: all hosts; the first one is the reference.
        visits: for each collective, the hosts that took part.

    Returns:
        The difference by host; 0 for hosts with no chain of meetings to the first one.
    """
    first, *others = dict.fromkeys(hosts)
    ahead, known = {first: 0}, [first]
    while known:
        host = known.pop()
        for other in [each for each in others if each not in ahead]:
            difference = _difference(host, other, visits)
            if difference is not None:
                ahead[other] = ahead[host] + difference
                known.append(other)
    return {**dict.fromkeys(others, 0), **ahead}


def _difference(
    one: str, other: str, visits: Iterable[Mapping[str, Visit]]
) -> int | None:
    """Return how far `other` is ahead of `one`; None if they never met."""
    both = [(visit[one], visit[other]) for visit in visits if {one, other} <= {*visit}]
    least = [b.came - a.left for a, b in both if a.left]
    most = [b.left - a.came for a, b in both if b.left]
    ends = [b.ended - a.ended for a, b in both if a.ended and b.ended]
    if not (least and most):
        return int(median(ends)) if ends else None
    low, high = max(least), min(most)
    if low > high:  # a clock was set meanwhile, or runs faster
        middles = [(low + high) // 2 for low, high in zip(least, most, strict=False)]
        return int(median(ends or middles))
    return min(high, max(low, int(median(ends)))) if ends else (low + high) // 2
