"""Looks after a program's waits in stores: ends them by a death, reports long ones.

If a rank of the world dies, it may have been the one to write what a wait is for, and a
store cannot know that. Each thread of a program is told once of a dead rank. Then a
program that knows better, or that makes a new group, may wait in the store again. Waits
of the package itself look after the ranks on their own.
"""

from __future__ import annotations

import sys
from types import FrameType

from allhands.backends.frames import called_frame, source_lines
from allhands.errors import RankFailedError
from allhands.groups.process_group import ProcessGroup
from allhands.groups.world import current
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.ranges import in_ranges
from allhands.store.hook import REQUESTS

__all__ = ["look"]

_MOST_KEYS = 3  # that a report lists
_FOR_KEYS = ("get", "wait", "multi_get")
_FOR_WORK = "queue_pop"  # those who serve a queue wait for long on purpose


def look(waited: float, limit: float) -> None:
    """Look after this wait in a store, if it is the program that waits.

    Raises:
        RankFailedError: a rank died of which no wait has told before.
    """
    called = called_frame(sys._getframe())
    if called is None or (request := called.f_code.co_name) not in REQUESTS:
        return
    world = current()
    if world.default is not None and world.deaths.is_due():
        _end_by_a_death(world.default, request)
    if request != _FOR_WORK and world.late_waits.is_due(waited, limit):
        _tell(called, world.fault_point.rank, waited, limit)


def _end_by_a_death(everybody: ProcessGroup, request: str) -> None:
    communicator = everybody.communicator
    dead = current().deaths.news(
        lambda: [rank for rank, how in communicator.endings().items() if not how]
    )
    if dead:
        raise _error(request, everybody.rank(), dead)


def _error(request: str, rank: int, dead: list[int]) -> RankFailedError:
    ranks = f"rank{'s' * (len(dead) > 1)} {in_ranges(dead)[1:-1]}"
    error = RankFailedError(
        f"{request}() of a store: {ranks} died while rank {rank} waited for what "
        "another rank writes; call it again if a rank that lives writes that"
    )
    error.ranks = dead
    return error


def _tell(called: FrameType, rank: int, waited: float, limit: float) -> None:
    who = "this process" if rank < 0 else f"rank {rank} (this process)"
    where = "".join(f" ({place})" for place in source_lines(called)[:1])
    say(
        LogLevel.WARNING,
        "waiting",
        rank,
        f"{called.f_code.co_name}() of a store: {who} has waited {waited:.3g} s "
        f"(limit {limit:g} s) for {_awaited(called)}{where}",
    )


def _awaited(called: FrameType) -> str:
    """Return for what the request waits, which is called in this frame."""
    given = called.f_locals
    if called.f_code.co_name == "barrier":
        return f"others at barrier {given.get('key')!r}"
    keys = given.get("keys", [given.get("key")])
    if called.f_code.co_name not in _FOR_KEYS or not isinstance(keys, list):
        return "an answer"
    if len(keys) == 1:
        return f"key {keys[0]!r}, which nobody has set"
    more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return f"all of the keys {', '.join(map(repr, keys[:_MOST_KEYS]))}{more}"
