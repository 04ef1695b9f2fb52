"""Explains why a wait took too long: what the ranks that did not come are doing.

The rank that gives up asks the others as `allhands debug` does. So it asks only ranks
of this host, and few of them: first the ranks for which it waits, then the ranks for
which these wait in turn. Of ranks on other hosts it learns what they wait for if they
give up, too (see `GivenUp`). Ranks that waited with it, and learn from it that the wait
ended, also learn the reason from it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress

from allhands.debug.asking import ask_ranks
from allhands.debug.dumps import ELSEWHERE, Dump
from allhands.debug.given_up import GivenUp
from allhands.debug.verdict import held_up
from allhands.debug.waits import waits
from allhands.elastic.record_memory import answers, record_in
from allhands.elastic.records import HALTED
from allhands.errors import CollectiveTimeoutError
from allhands.rendezvous.identity import Identity, is_alive, process_identity

__all__ = ["explanation", "explanation_of", "is_worth_asking", "teller_of"]

_WAITED = re.compile(r"timed out: waited (\d+(?:\.\d+)?) s")
_TELLER = re.compile(
    r" on group '([^']*)'(?: \([^)]*\))?:.*?\brank (\d+) (?:\(this process\)|reports)"
)
_LEAST_WAIT = 1.0  # seconds; a rank that waits for less looks again and again
_MOST = 8  # the most ranks to ask
_LIMIT = 0.3  # seconds for all of them; the error comes later by this time
_EARLIER = 10**9  # nanoseconds; it may have given up so long before this rank heard
_PAUSE = 0.02  # seconds between looks whether the asking rank has an answer
_PAUSE_EACH = 0.001  # seconds for every rank that looks


def is_worth_asking(error: CollectiveTimeoutError) -> bool:
    """Return whether the wait was long, judging by the error's text.

    If a program repeatedly looks for a message for some milliseconds, this must neither
    lengthen its waits nor disturb its peers.
    """
    told = _WAITED.search(str(error))
    return told is not None and float(told[1]) >= _LEAST_WAIT


def teller_of(error: CollectiveTimeoutError) -> tuple[str, int]:
    """Return the group in which a rank gave up, and the group rank that did.

    The text of `error` has both; the rank is -1 if it does not.
    """
    told = _TELLER.search(str(error))
    return (told[1], int(told[2])) if told else ("", -1)


def explanation(mine: Dump, world: Sequence[Identity], given_up: GivenUp | None) -> str:
    """Return what holds up the rank that gave up: "why: ..."; empty if unknown.

    Args:
        mine: the record of this rank, which fails by waiting.
        world: the processes of all ranks.
        given_up: the records of ranks that gave up; None if all are on one host.
    """
    dumps, endings = {mine.rank: mine}, dict[int, str]()
    asked, end = {mine.rank}, time.monotonic() + _LIMIT
    while time.monotonic() < end:
        found = waits(dumps, 0.0).values()
        unknown = {rank for wait in found for rank in wait.awaited} - asked
        if not unknown or len(asked) + len(unknown) > _MOST + 1:
            break
        asked |= unknown
        told = ask_ranks(
            {rank: world[rank] for rank in unknown}, end - time.monotonic()
        )
        dumps.update({dump.rank: dump for dump in told.dumps})
        far = [rank for rank, why in told.endings.items() if why == ELSEWHERE]
        if far and given_up is not None:
            dumps.update(given_up.of(far, end - time.monotonic()))
        halted = told.endings.items()
        endings.update({r: why for r, why in halted if why.startswith(HALTED)})
    why = held_up(dumps, endings, mine)
    assert mine.failure is not None
    is_by_world = mine.group_of(mine.failure.group).is_world(mine.world_size)
    return why and f"why{'' if is_by_world else ' (ranks of the world)'}: {why}"


def explanation_of(teller: Identity, group: str, size: int) -> str:
    """Return the reason that the rank which gave up has found; empty if none in time.

    Args:
        teller: the process of that rank.
        group: the group in which it gave up.
        size: the number of ranks that may look at once.
    """
    heard, end = time.time_ns(), time.monotonic() + 2 * _LIMIT
    pause = max(_PAUSE, size * _PAUSE_EACH)
    while _is_here(teller) and answers(teller.pid) and time.monotonic() < end:
        time.sleep(pause)
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            told = json.loads(record_in(teller.pid))
            is_it = told["error"]["group"] == group
            if is_it and told["time_ns"] > heard - _EARLIER:
                return str(told["error"]["why"])
    return ""


def _is_here(process: Identity) -> bool:
    """Return whether it can be asked: another live process of this host."""
    me = process_identity()
    return process.host == me.host and process.pid != me.pid and is_alive(process)
