"""Waits for all members of a group before a library makes the group.

The library itself would wait without limit, or would not name the missing members. So
the members meet in the store first.
"""

from __future__ import annotations

import time
from datetime import timedelta

from allhands import settings
from allhands.backends.communicator import CommunicatorOptions
from allhands.errors import DistStoreError, RankFailedError
from allhands.options import to_seconds
from allhands.rendezvous.identity import is_alive
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.ranges import in_ranges
from allhands.store import Store

__all__ = ["await_members"]

_LOOK = 1.0  # seconds between checks for dead members, at least
_LOOK_EACH = 1 / 64  # seconds per member, because each member checks all others


def await_members(
    store: Store, keys: list[str], options: CommunicatorOptions, backend: str
) -> None:
    """Wait until each member has set its key; report a long wait.

    Raises:
        RankFailedError: a member died before it came. A death on this host is noticed
            after about a second.
        DistStoreError: a member did not come within the group's timeout.
    """
    limit = to_seconds(options.timeout)
    start = time.monotonic()
    patience = settings.patience.get() or limit
    while True:
        waited = time.monotonic() - start
        look = max(_LOOK, len(keys) * _LOOK_EACH)
        left = min(look, patience - waited, limit - waited)
        try:
            store.wait(keys, timedelta(seconds=max(left, 0.001)))
            return
        except DistStoreError:
            if store.check(keys):  # raises if the store itself failed
                return
            _refuse_dead(store, keys, options, backend)
        waited = time.monotonic() - start
        if waited < min(patience, limit):
            continue
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        if not missing:
            return
        text = (
            f"rank {options.group_rank} (this process) has waited {waited:.0f} s "
            f"(limit {limit:g} s) for rank{'s' * (len(missing) > 1)} "
            f"{in_ranges(missing)}, which did not come to make group "
            f"{options.group_id!r} of backend {backend}"
        )
        if waited >= limit:
            raise DistStoreError(f"{text}: timed out") from None
        ranks = options.world_ranks
        rank = ranks[options.group_rank] if ranks else options.group_rank
        say(LogLevel.WARNING, "waiting", rank, text)
        patience *= 2


def _refuse_dead(
    store: Store, keys: list[str], options: CommunicatorOptions, backend: str
) -> None:
    """Raise an error if a member ended, as far as this host knows, before it came."""
    identities = options.roster().identities
    members = [identities[rank] for rank in options.global_ranks_in_group]
    ended = [rank for rank, member in enumerate(members) if not is_alive(member)]
    dead = [rank for rank in ended if not store.check([keys[rank]])]
    if not dead:
        return
    pids = ", ".join(f"rank {rank} (pid {members[rank].pid})" for rank in dead)
    error = RankFailedError(
        f"group {options.group_id!r} of backend {backend} cannot be made: it needs "
        f"{pids}, which died before it came"
    )
    error.ranks = dead
    raise error
