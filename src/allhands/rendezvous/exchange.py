"""The one exchange over the store that a world needs: the ranks meet.

Each rank says in the store which process it is, and learns from rank 0 who the others
are. Rank 0 waits for all and leaves the *outcome*, one value, which the others wait
for: the roster of all ranks with a random token of the job, or why rank 0 gave up, as
where one of them has died. It often hosts the store, so it leaves last, after the
others have read all that they need. A rank makes a handful of requests of some bytes
each; only rank 0 looks at what all have said, and a long roster goes to each host once.
Groups made later need no store: their tokens are derived from the job's.

Where the ranks may be on several hosts, each says also at which port the others reach
it, and once they have met lets those in who know the job's token.

A store may serve several worlds one after the other. `join/<rank>` counts the worlds a
rank has entered, and the count, the same on every rank, prefixes all other keys:

    identity/<rank>  which process it is; empty once the rank gave up
    outcome          what rank 0 tells the others
    read/<rank>      the rank has read all that it needs
    num_told         how many ranks found that they wait long; the first says so
    roster, host/    see `host_copy`

A rank whose exchange fails takes its count back, so that the ranks can try again.
"""

from __future__ import annotations

import time
from datetime import timedelta

from allhands import settings
from allhands.errors import DistNetworkError
from allhands.rendezvous.meeting import HostLeft, Meeting
from allhands.rendezvous.port import open_port
from allhands.rendezvous.rank_0 import MeetingOfRank0
from allhands.rendezvous.roster import Roster
from allhands.store import Store

__all__ = ["HostLeft", "exchange"]


def exchange(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    operation: str,
    start: float | None = None,
    found: Store | None = None,
) -> Roster:
    """Publish this rank's identity and read everyone's; returns once all have come.

    Rank 0 returns last, since it often hosts the store that the others still read.
    `operation` is what errors name. `timeout` runs since `start`, a time of
    `time.monotonic()`; by default since now. `found` is the store in which the ranks
    found each other, where it may know of some that died before they came here.

    Raises:
        DistStoreError: some ranks did not come within `timeout`, of this rank or of
            rank 0; names them. Or the store has there what no rank writes.
        RankFailedError: on rank 0 one came and died before all had come, on the others
            rank 0 did.
        DistNetworkError: the store was lost meanwhile; `HostLeft` where rank 0 had not
            come yet.
        ValueError: the ranks do not agree about `size`.
    """
    start = time.monotonic() if start is None else start
    port = open_port(size, store)
    kind = Meeting if rank else MeetingOfRank0
    place = port.endpoints
    meeting = kind(store, rank, size, timeout, operation, start, found, place)
    try:
        roster = meeting.hold()
    except BaseException as error:
        port.close()
        meeting.give_up(error)
        if isinstance(error, DistNetworkError):
            raise meeting.lost(error) from error
        raise
    if not roster.spans_hosts:
        port.close()
        return roster
    if port.native is not None:
        # The token has passed through the store, the secret never does.
        port.native.start(roster.token_for("port", settings.secret.get()))
    return roster._replace(port=port)
