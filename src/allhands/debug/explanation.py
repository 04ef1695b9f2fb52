"""Explains why a wait took too long: what the ranks that did not come are doing.

The rank that gives up asks the others as `allhands debug` does. So it asks only ranks
of this host, and few of them: first the ranks for which it waits, then the ranks for
which these wait in turn. Ranks in such a row give up at about the same time, so some
may be gone by then; what these found is passed on. Of ranks on other hosts it learns
what they wait for if they give up, too (see `GivenUp`). Ranks that waited with it, and
learn from it that the wait ended, also learn the reason from it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from allhands.debug.allowance import Allowance
from allhands.debug.asking import ask_ranks
from allhands.debug.dumps import ELSEWHERE, ENDED, NOT_HERE, Dump
from allhands.debug.given_up import GivenUp
from allhands.debug.hearsay import BY_WORLD, CYCLE, reason_in
from allhands.debug.verdict import held_up
from allhands.debug.waits import waits
from allhands.elastic.record_memory import answers, record_in
from allhands.elastic.records import HALTED
from allhands.errors import CollectiveTimeoutError
from allhands.rendezvous.identity import Identity, is_alive, process_identity

__all__ = [
    "explanation",
    "explanation_of",
    "is_of_a_collective",
    "is_worth_asking",
    "teller_of",
]

_WAITED = re.compile(r"timed out: waited (\d+(?:\.\d+)?) s")
_COLLECTIVE = re.compile(r" #\d+ on group ")
_GROUP = re.compile(r" on group '([^']*)'(?: \([^)]*\))?:")
_TELLERS = (
    re.compile(r"\brank (\d+) reports\b"),
    re.compile(r"\brank (\d+) \(this process\)"),
)
_LEAST_WAIT = 1.0  # seconds; a rank that waits for less looks again and again
_MOST = 8  # the most ranks to ask; of those further along a row, reasons are passed on
_LIMIT = 0.3  # seconds for all of them; the error comes later by this time
_LONGER = 1.5  # seconds that it may take longer where there is no free CPU
_EARLIER = 2 * 10**9  # nanoseconds; it may have given up so long before this rank heard
_PAUSE = 0.02  # seconds between looks whether the asking rank has an answer
_PAUSE_EACH = 0.001  # seconds for every rank that looks
_PAUSE_OF_ONE = 0.005  # seconds between looks at what ranks that are about to end tell
_GONE = (ENDED, NOT_HERE)
_LINK = re.compile(r"rank \d+ (waits in |gave up waiting)")


def is_worth_asking(error: CollectiveTimeoutError) -> bool:
    """Return whether the wait was long, judging by the error's text.

    If a program repeatedly looks for a message for some milliseconds, this must neither
    lengthen its waits nor disturb its peers.
    """
    told = _WAITED.search(str(error))
    return told is not None and float(told[1]) >= _LEAST_WAIT


def is_of_a_collective(error: CollectiveTimeoutError) -> bool:
    """Return whether the wait was one of a collective, so that its group is broken."""
    return _COLLECTIVE.search(str(error)) is not None


def teller_of(error: CollectiveTimeoutError) -> tuple[str, int]:
    """Return the group in which a rank gave up, and the group rank that did.

    The text of `error` has both; the rank is -1 if it does not.
    """
    text = str(error)
    group = _GROUP.search(text)
    told = next((found for each in _TELLERS if (found := each.search(text))), None)
    return (group[1], int(told[1])) if group and told else ("", -1)


def explanation(
    mine: Dump,
    world: Sequence[Identity],
    given_up: GivenUp | None,
    told_at_end: Callable[[], Mapping[int, str]],
) -> str:
    """Return what holds up the rank that gave up: "why: ..."; empty if unknown.

    Args:
        mine: the record of this rank, which fails by waiting.
        world: the processes of all ranks.
        given_up: the records of ranks that gave up; None if all are on one host.
        told_at_end: returns what ranks have told when they left because of a failure.
    """
    dumps, endings = {mine.rank: mine}, dict[int, str]()
    asked, allowance = {mine.rank}, Allowance(_LIMIT)
    why = ""
    while not why and (left := allowance.left()) > 0:
        awaited = _awaited(dumps)
        unknown = awaited - asked
        if not unknown and not any(endings.get(rank) in _GONE for rank in awaited):
            break
        is_row = any(
            dump.failure is not None for dump in dumps.values() if dump != mine
        )
        are_too_many = len(asked) + len(unknown) > _MOST + 1
        if are_too_many and not is_row:
            break
        is_early = left > _LIMIT / 2
        if not unknown or are_too_many or (is_row and is_early):
            why = _passed_on(mine, dumps, awaited, world, told_at_end())
            time.sleep(_PAUSE_OF_ONE)
            continue
        asked |= unknown
        told = ask_ranks({rank: world[rank] for rank in unknown}, left)
        dumps.update({dump.rank: dump for dump in told.dumps})
        endings.update(told.endings)
        far = [rank for rank in unknown if endings.get(rank) == ELSEWHERE]
        if far and given_up is not None:
            dumps.update(given_up.of(far, allowance.left()))
    halted = {r: how for r, how in endings.items() if how.startswith(HALTED)}
    why = why or held_up(dumps, halted, mine)
    assert mine.failure is not None
    is_by_world = mine.group_of(mine.failure.group).is_world(mine.world_size)
    return why and f"why{'' if is_by_world else BY_WORLD}: {why}"


def _awaited(dumps: Mapping[int, Dump]) -> set[int]:
    """Return the ranks for which any of these ranks wait."""
    return {rank for wait in waits(dumps, 0.0).values() for rank in wait.awaited}


def _passed_on(
    mine: Dump,
    dumps: Mapping[int, Dump],
    awaited: Collection[int],
    world: Sequence[Identity],
    told_at_end: Mapping[int, str],
) -> str:
    """Return the reason that another rank has found; empty if none is known (yet).

    Ranks that wait in a row give up at about the same time. So a rank may be gone when
    it is asked. But it told what it had found when it left, and a rank that waited for
    it may have that in its record.

    Args:
        mine: the record of this rank.
        dumps: the records of ranks, by rank, `mine` among them.
        awaited: the ranks for which these ranks wait.
        world: the processes of all ranks.
        told_at_end: what ranks have told when they left because of a failure.
    """
    found = waits(dumps, 0.0)
    texts = [told_at_end.get(rank, "") for rank in awaited]
    texts += [
        _reason_in(world[rank], dump.failure.group)
        for rank, dump in dumps.items()
        if rank != mine.rank and dump.failure is not None
    ]
    reason = next((told for text in texts if (told := reason_in(text))), "")
    if not reason or reason.startswith(CYCLE) or mine.rank not in found:
        return reason
    links = [
        f"rank {rank} waits in {found[rank]}"
        if rank in found
        else f"rank {rank} gave up waiting, too"
        for rank in sorted(found[mine.rank].awaited)
    ]
    parts = [part for part in reason.split("; ") if not _LINK.match(part)]
    return "; ".join([*links, *parts])


def explanation_of(
    teller: Identity, group: str, size: int, given_up: GivenUp | None
) -> str:
    """Return the reason that the rank which gave up has found; empty if none in time.

    Args:
        teller: the process of that rank.
        group: the group in which it gave up.
        size: the number of ranks that may look at once.
        given_up: what ranks of other hosts tell; None if all are on one host.
    """
    if teller.host != process_identity().host:
        return "" if given_up is None else given_up.reason(group, 2 * _LIMIT)
    allowance = Allowance(2 * _LIMIT)
    longest = time.monotonic() + 2 * _LIMIT + _LONGER
    while _is_here(teller) and answers(teller.pid):
        time.sleep(max(_PAUSE, size * _PAUSE_EACH))
        error = _error_in(teller, group)
        if error is not None and "why" in error:
            return str(error["why"])
        is_asking = error is not None and time.monotonic() < longest
        if not is_asking and allowance.left() <= 0:
            break
    return ""


def _reason_in(teller: Identity, group: str) -> str:
    """Return the reason in the record of a rank that gives up now; empty if none.

    Args:
        teller: the process of that rank.
        group: the group in which it gives up.
    """
    return str((_error_in(teller, group) or {}).get("why", ""))


def _error_in(teller: Identity, group: str) -> Mapping[str, Any] | None:
    """Return the error of a rank that gives up now; its "why" is there once known."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        told = json.loads(record_in(teller.pid))
        error: Mapping[str, Any] = told["error"]
        is_it = error["group"] == group
        if is_it and told["time_ns"] > time.time_ns() - _EARLIER:
            return error
    return None


def _is_here(process: Identity) -> bool:
    """Return whether it can be asked: another live process of this host."""
    me = process_identity()
    return process.host == me.host and process.pid != me.pid and is_alive(process)
