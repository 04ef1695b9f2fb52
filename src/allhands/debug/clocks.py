"""Clocks: how far the clock of each host is ahead of another's, as operations tell.

Nobody leaves some collectives before all have come. So what one host had on its clock
when its last rank came was not later than what another had when its first rank left,
which bounds the difference of both clocks from either side. Within these bounds the
ends, where they are timed, are taken for one moment: all ranks learn of it at once but
for the way between hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

__all__ = ["Visit", "clocks"]


class Visit(NamedTuple):
    """A host in a collective that nobody leaves before all have come.

    Nanoseconds since 1970 by the host's clock; 0: that is not known.
    """

    came: int
    """When its last rank did."""
    left: int
    """When its first rank had left, at the latest."""
    ended: int
    """When its first rank left."""


def clocks(
    hosts: Iterable[str], visits: Sequence[Mapping[str, Visit]]
) -> dict[str, int]:
    """How far each host's clock is ahead of the first one's, in nanoseconds.

    Args:
        hosts: all; the first one counts.
        visits: of each collective the hosts that were in it.

    Returns:
        By host; 0 for those that met neither the first nor one that did.
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
    """How far `other` is ahead of `one`; None: they never met."""
    both = [(visit[one], visit[other]) for visit in visits if {one, other} <= {*visit}]
    least = [b.came - a.left for a, b in both if a.left]
    most = [b.left - a.came for a, b in both if b.left]
    ends = [b.ended - a.ended for a, b in both if a.ended and b.ended]
    if not (least and most):
        return int(median(ends)) if ends else None
    low, high = max(least), min(most)
    if low > high:  # one of the clocks was set meanwhile, or runs faster
        middles = [(low + high) // 2 for low, high in zip(least, most, strict=False)]
        return int(median(ends or middles))
    return min(high, max(low, int(median(ends)))) if ends else (low + high) // 2
