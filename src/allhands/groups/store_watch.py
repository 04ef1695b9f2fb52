"""Ends a program's wait in a store if a rank of the world dies meanwhile.

The dead rank may have been the one to write what the wait is for, and a store cannot
know that. Each thread of a program is told once of a dead rank. Then a program that
knows better, or that makes a new group, may wait in the store again. Waits of the
package itself look after the ranks on their own.
"""

from __future__ import annotations

import sys

from allhands.backends.frames import inside
from allhands.errors import RankFailedError
from allhands.groups.world import current
from allhands.rendezvous.ranges import in_ranges
from allhands.store.hook import REQUESTS

__all__ = ["look"]


def look() -> None:
    """End this wait in a store, if a program waits and a rank has died.

    Raises:
        RankFailedError: a rank died of which no wait has told before.
    """
    world = current()
    if world.default is None or not world.deaths.is_due():
        return
    request = inside(sys._getframe())
    if request not in REQUESTS:
        return
    communicator = world.default.communicator
    dead = world.deaths.news(
        lambda: [rank for rank, how in communicator.endings().items() if not how]
    )
    if dead:
        raise _error(request, world.fault_point.rank, dead)


def _error(request: str, rank: int, dead: list[int]) -> RankFailedError:
    ranks = f"rank{'s' * (len(dead) > 1)} {in_ranges(dead)[1:-1]}"
    error = RankFailedError(
        f"{request}() of a store: {ranks} died while rank {rank} waited for what "
        "another rank writes; call it again if a rank that lives writes that"
    )
    error.ranks = dead
    return error
