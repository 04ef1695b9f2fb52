"""How the members of a group wait for each other where a library makes it of them all.

The library would wait without limit, or name nobody, so they meet in the store first.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

from allhands import settings
from allhands.backends.communicator import CommunicatorOptions
from allhands.errors import DistStoreError
from allhands.options import to_seconds
from allhands.rendezvous.ranges import in_ranges
from allhands.store import Store

__all__ = ["await_members"]


def await_members(
    store: Store, keys: list[str], options: CommunicatorOptions, backend: str
) -> None:
    """Wait until each member has set its key; say for whom where it takes long.

    Raises:
        DistStoreError: a member did not within the group's timeout.
    """
    limit = to_seconds(options.timeout)
    start = time.monotonic()
    patience = settings.patience.get() or limit
    while True:
        left = limit - (time.monotonic() - start)
        try:
            store.wait(keys, timedelta(seconds=max(min(patience, left), 0.001)))
            return
        except DistStoreError:
            missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
            waited = time.monotonic() - start
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
            sys.stderr.write(f"allhands: {text}\n")
            patience *= 2
