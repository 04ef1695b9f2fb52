"""The exchange over the store in which the ranks of a world meet.

Each rank writes to the store which process it is, and learns from rank 0 the processes
of the others. Rank 0 waits for all ranks and writes the *outcome*, one value for which
the others wait. The outcome is the roster of all ranks with a random token of the job,
or the reason why rank 0 gave up, for example because a rank died. Rank 0 often hosts
the store, so it leaves last, after the others have read all that they need. A rank
makes a handful of small requests. Only rank 0 reads the introductions of all ranks, and
each host gets a long roster once. Groups made later need no store: their tokens are
derived from the token of the job.

If the ranks may be on several hosts, each rank also says at which port the others reach
it. After the meeting its port accepts peers that know the job's token.

A store may serve several worlds one after the other. `join/<rank>` counts the worlds
that a rank has entered. The count is the same on every rank and prefixes all other
keys:

    identity/<rank>  the process of the rank; empty after the rank gave up
    outcome          what rank 0 tells the others
    read/<rank>      the rank has read all that it needs
    num_told         how many ranks noticed a long wait; the first one reports it
    roster, host/    see `host_copy`

A rank whose exchange fails takes its count back, so that the ranks can try again.
"""

from __future__ import annotations

import time
from datetime import timedelta

from allhands import settings
from allhands.errors import DistNetworkError
from allhands.rendezvous.asked import NOTHING, Asked
from allhands.rendezvous.log import LogLevel, beginning, is_said
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
    asked: Asked = NOTHING,
) -> Roster:
    """Publish this rank's identity and read all others; return when all have come.

    Rank 0 returns last, because it often hosts the store that the others still read.
    `operation` is the name for errors. `timeout` counts from `start`, a time of
    `time.monotonic()`, by default from now. `found` is the store in which the ranks
    found each other; it may know of ranks that died before they came here. `asked` is
    the backend that this rank asks for.

    Raises:
        DistStoreError: some ranks, which the message names, did not come within the
            `timeout` of this rank or of rank 0; or the store holds a value that no rank
            writes.
        RankFailedError: on rank 0: a rank came and died before all had come. On the
            others: rank 0 did.
        DistNetworkError: the store was lost meanwhile; `HostLeft` if rank 0 had not
            come yet.
        ValueError: the ranks pass different sizes, or ask for different backends; a
            rank that rank 0 agrees with hears of it as DistStoreError.
    """
    start = time.monotonic() if start is None else start
    port = open_port(size, store)
    kind = Meeting if rank else MeetingOfRank0
    place = port.endpoints
    meeting = kind(store, rank, size, timeout, operation, start, found, place, asked)
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
        # The token has passed through the store; the secret never does.
        secret = roster.token_for("port", settings.secret.get())
        is_heard = is_said(LogLevel.WARNING)
        speaker = beginning("network", rank) if is_heard else ""
        port.native.start(secret, speaker=speaker)
    return roster._replace(port=port)
