"""GivenUp: the records of ranks that gave up waiting, for ranks of other hosts.

A rank can ask only ranks of its own host what they do (see `asking`). Ranks that wait
for each other give up at about the same time. So a rank that gives up writes its record
to the world's store, and looks there for those of the ranks on other hosts for which it
waits. The keys are `gave_up/<rank>`.

A collective that takes too long breaks its group. The rank that gave up first writes
the reason that it has found, under `why/<group>`, for ranks of other hosts that waited
with it.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from typing import Any

from allhands.debug.dumps import Dump
from allhands.store import Store

__all__ = ["GivenUp"]

_PAUSE = 0.02  # seconds between looks into the store
_FRESH = 2 * 10**9  # nanoseconds; the clocks of hosts may differ by some of it
_LONGEST_END = 2.0  # seconds by which requests under way hold up the process's end

_running = set[threading.Thread]()


class GivenUp:
    """The records in `store`.

    The store may have been lost with the host of another rank, and then requests to it
    may take long. So they run in threads of their own, for which nobody waits longer
    than a given time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def tell(self, told: dict[str, Any]) -> None:
        """Write the record of this rank."""
        _within(0.0, lambda: self._store.set(_key(told["rank"]), json.dumps(told)))

    def of(self, ranks: Collection[int], limit: float) -> dict[int, Dump]:
        """Return the records of those of `ranks` that gave up lately, by rank.

        Args:
            ranks: ranks of other hosts.
            limit: seconds after which the records that are missing are left out.
        """
        found: dict[int, Dump] = {}
        end = time.monotonic() + limit

        def look() -> None:
            while len(found) < len(ranks) and time.monotonic() < end:
                for rank in ranks:
                    dump = None if rank in found else self._look(rank)
                    if dump is not None:
                        found[rank] = dump
                time.sleep(_PAUSE)

        _within(limit, look)
        return dict(found)

    def tell_reason(self, group: str, why: str) -> None:
        """Write why the ranks of a group that is broken now waited; "" if unknown."""
        _within(0.0, lambda: self._store.set(_reason_key(group), why))

    def reason(self, group: str, limit: float) -> str:
        """Return what `tell_reason` has written; empty if nothing within `limit`."""
        found = list[bytes]()

        def await_it() -> None:
            key, longest = _reason_key(group), timedelta(seconds=limit)
            told = self._store._get_within(key, longest)  # one request, which waits
            found.extend([] if told is None else [told])

        _within(limit, await_it)
        return found[0].decode(errors="replace") if found else ""

    def _look(self, rank: int) -> Dump | None:
        if not self._store.check([_key(rank)]):
            return None
        with suppress(ValueError, RecursionError):  # something else wrote there
            dump = Dump.of(json.loads(self._store.get(_key(rank))))
            if dump.rank == rank and abs(time.time_ns() - dump.time) < _FRESH:
                return dump
        return None


def _key(rank: int) -> str:
    return f"gave_up/{rank}"


def _reason_key(group: str) -> str:
    return f"why/{group}"


def _within(limit: float, act: Callable[[], object]) -> None:
    """Let a thread do `act`; wait for it for up to `limit` seconds."""

    def run() -> None:
        _running.add(threading.current_thread())
        try:
            with suppress(RuntimeError):  # the store is gone: nobody learns anything
                act()
        finally:
            _running.discard(threading.current_thread())

    thread = threading.Thread(target=run, daemon=True, name="allhands gave up")
    thread.start()
    thread.join(limit)


@atexit.register
def _await_running() -> None:
    """Wait for requests under way: in one of them Python's end aborts the process."""
    end = time.monotonic() + _LONGEST_END
    for thread in list(_running):
        thread.join(max(0.0, end - time.monotonic()))
