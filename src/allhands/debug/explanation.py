"""Why a wait took too long: what the ranks that did not come do, as they say.

Who gives up asks them as `allhands debug` does. So only those of this host are asked,
and few of them: first whom this rank waits for, then for whom these wait in turn. Those
who waited with it, and hear of the end from it, hear the reason from it, too.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress

from allhands.debug.asking import ask_ranks
from allhands.debug.dumps import Dump
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
_LEAST_WAIT = 1.0  # seconds; who waits for less looks again and again
_MOST = 8  # ranks that are asked
_LIMIT = 0.3  # seconds that they have together, by which the error comes later
_EARLIER = 10**9  # nanoseconds by which it may have given up before this rank heard
_PAUSE = 0.02  # seconds between looks whether who asks has heard
_PAUSE_EACH = 0.001  # seconds for every rank that does so


def is_worth_asking(error: CollectiveTimeoutError) -> bool:
    """Whether the wait that was given up was long, as its text says.

    A program that looks for a message for some milliseconds, and does so again and
    again, shall neither wait for longer nor disturb its peers.
    """
    told = _WAITED.search(str(error))
    return told is not None and float(told[1]) >= _LEAST_WAIT


def teller_of(error: CollectiveTimeoutError) -> tuple[str, int]:
    """The group in which a rank gave up, and which rank of it that is.

    As the text of `error` says; -1: it says of none.
    """
    told = _TELLER.search(str(error))
    return (told[1], int(told[2])) if told else ("", -1)


def explanation(mine: Dump, world: Sequence[Identity]) -> str:
    """What holds up the rank that gave up a wait: "why: ..."; empty: it is not known.

    Args:
        mine: the record of this rank, which fails by waiting.
        world: the processes of all ranks.
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
        endings.update({r: why for r, why in told.endings.items() if why == HALTED})
    why = held_up(dumps, endings, mine)
    assert mine.failure is not None
    is_by_world = mine.group_of(mine.failure.group).is_world(mine.world_size)
    return why and f"why{'' if is_by_world else ' (ranks of the world)'}: {why}"


def explanation_of(teller: Identity, group: str, size: int) -> str:
    """What the one that gave up found out; empty: nothing, or nothing in time.

    Args:
        teller: its process.
        group: in which it did.
        size: the number of ranks that may be looking for it.
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
    """Whether it can be asked: another process of this host, which lives."""
    me = process_identity()
    return process.host == me.host and process.pid != me.pid and is_alive(process)
