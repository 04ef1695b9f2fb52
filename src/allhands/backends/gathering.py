"""The members of a group wait for each other before a library makes the group.

The library itself would wait without limit, or would not name the missing members. So
the members meet in the store first, where each sets the key `here/<rank>`. A rank that
will not make the group says so there, too (`refuse`).
"""

from __future__ import annotations

import time
from datetime import timedelta

from allhands import settings
from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.news import GroupNews
from allhands.errors import (
    CollectiveMismatchError,
    DistStoreError,
    RankFailedError,
)
from allhands.options import to_seconds
from allhands.rendezvous.identity import is_alive
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.ranges import in_ranges
from allhands.store import PrefixStore, Store

__all__ = ["await_members", "keys_of", "refuse", "store_of"]

_REFUSED = "refused"
_LOOK = 1.0  # seconds between checks for dead members, at least
_LOOK_EACH = 1 / 64  # seconds per member, because each member checks all others


def store_of(name: str, options: CommunicatorOptions) -> Store:
    """Return a store for one group of the backend `name`, which nothing else uses."""
    ranks = options.global_ranks_in_group
    token = options.roster().token_for(name, ranks, options.num_alike).hex()
    return PrefixStore(f"{name}/{token[:16]}", options.store)


def keys_of(options: CommunicatorOptions, where: str = "here") -> list[str]:
    """Return the keys that the members set, by rank."""
    return [f"{where}/{rank}" for rank in range(options.group_size)]


def refuse(name: str, options: CommunicatorOptions, reason: str) -> None:
    """Tell the members of a group of the backend `name` that this rank stays away."""
    store = store_of(name, options)
    store.set(_REFUSED, reason)
    GroupNews(store, options).tell_abort(reason)  # if they do not wait as it is made
    store.set(keys_of(options)[options.group_rank], b"")  # they wait no longer


def await_members(
    store: Store, keys: list[str], options: CommunicatorOptions, backend: str
) -> None:
    """Wait until each member has set its key; report a long wait.

    Raises:
        RankFailedError: a member died before it came. A death on this host is noticed
            after about a second.
        CollectiveMismatchError: a member refused to make the group.
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
            break
        except DistStoreError:
            if store.check(keys):  # raises if the store itself failed
                break
            _heed_refusal(store, options, backend)
            _refuse_dead(store, keys, options, backend)
        waited = time.monotonic() - start
        if waited < min(patience, limit):
            continue
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        if not missing:
            break
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
    _heed_refusal(store, options, backend)


def _heed_refusal(store: Store, options: CommunicatorOptions, backend: str) -> None:
    """Raise an error if a member told that it will not make the group."""
    if store.check([_REFUSED]):
        raise CollectiveMismatchError(
            f"group {options.group_id!r} of backend {backend} cannot be made: "
            f"{store.get(_REFUSED).decode()}"
        )


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
