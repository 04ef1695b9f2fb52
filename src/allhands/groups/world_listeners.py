"""Functions that tools have called when the world of this process begins or ends.

Worlds that single threads use tell nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from allhands.groups.visible_group import VisibleGroup
from allhands.rendezvous.roster import Roster

__all__ = [
    "tell_beginning",
    "tell_end",
    "tell_meeting",
    "when_a_group_has_ended",
    "when_the_ranks_have_met",
    "when_this_is_a_rank",
]

_beginnings: list[Callable[[], object]] = []
_meetings: list[Callable[[Roster, int], object]] = []
_ends: list[Callable[[VisibleGroup], object]] = []


def when_this_is_a_rank(call: Callable[[], object]) -> None:
    """Call `call` each time this process begins to be a rank."""
    _beginnings.append(call)


def when_the_ranks_have_met(call: Callable[[Roster, int], object]) -> None:
    """Call `call` with each roster of this process's world, and its rank."""
    _meetings.append(call)


def when_a_group_has_ended(call: Callable[[VisibleGroup], object]) -> None:
    """Call `call` with each group of this process's world after its shutdown.

    The group of all ranks comes last.
    """
    _ends.append(call)


def tell_beginning() -> None:
    """Call the functions for a process that begins to be a rank."""
    for call in _beginnings:
        call()


def tell_meeting(roster: Roster, rank: int) -> None:
    """Call the functions for ranks that have met."""
    for call in _meetings:
        call(roster, rank)


def tell_end(group: VisibleGroup) -> None:
    """Call the functions for a group that has ended."""
    for call in _ends:
        call(group)
