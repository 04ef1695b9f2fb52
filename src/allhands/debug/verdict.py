"""The verdict: what is wrong with a job, in one line, from the records of its ranks.

It examines the first failure that no other failure explains: an exception of the
program, ranks that called different things, a wait that took too long, or a rank that
is gone. If nothing failed, it looks only for ranks that have waited long, or that came
last repeatedly. Records may be missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from allhands._C import ANY_TAG
from allhands.backends.frames import SourceLine
from allhands.debug.dumps import ELSEWHERE, NOT_HERE, Dump, Entry, Failure
from allhands.debug.hearsay import CYCLE, told_cycle, told_of
from allhands.debug.stragglers import worst_straggler
from allhands.debug.waits import Wait, cycle, failed_by_waiting, waits
from allhands.elastic.records import ENDED_WELL, HALTED, NO_ANSWER

__all__ = ["LEAST_WAIT", "Verdict", "held_up", "ranks_text", "verdict"]

LEAST_WAIT = 5.0
"""Seconds; a rank that has waited less and has not failed accuses no other rank."""
_OURS = (
    *("RankFailedError", "CollectiveMismatchError", "CollectiveTimeoutError"),
    "DistBackendError",
)
# Numbers as long as ranks have them; `int` refuses thousands of digits.
_CALLS = re.compile(r"\brank (\d{1,7})(?: \(this process\))?: (\w+\([^;]*)")
_ACCUSED = re.compile(r"ranks \[(\d{1,7}(?:, \d{1,7})*)\] of group '([^']*)'")
Kind: TypeAlias = Literal[
    "exception",
    "mismatch",
    "cycle",
    "stuck",
    "late",
    "missing",
    "dead",
    "failure",
    "straggler",
]
"""The kind of a verdict; "failure": an operation failed for an unknown reason."""
# How endings begin; more may follow.
_UNKNOWN = (ELSEWHERE, NOT_HERE)
_ALIVE = (HALTED, NO_ANSWER)
_NOT_DEAD = (ENDED_WELL, NO_ANSWER, *_UNKNOWN)
_LONGEST = 900


@dataclass(frozen=True)
class Verdict:
    """What is wrong, and which ranks are to blame. Immutable."""

    kind: Kind
    ranks: tuple[int, ...]
    """World ranks."""
    line: str
    """For people: which ranks, what, and where, on one line."""


def verdict(
    dumps: Iterable[Dump],
    endings: Mapping[int, str] | None = None,
    least_wait: float = LEAST_WAIT,
) -> Verdict | None:
    """Return the verdict; None if nothing is wrong, as far as the records show.

    Args:
        dumps: the record of each rank that left one.
        endings: how ranks ended, if known: "killed by SIGKILL".
        least_wait: seconds; see `LEAST_WAIT`.
    """
    settled = (_without_short_wait(dump, least_wait) for dump in dumps)
    case = _Case({dump.rank: dump for dump in settled}, endings or {})
    found = waits(case.dumps, least_wait)
    first = case.first_failure()
    if first is not None:
        assert first.failure is not None
        if first.failure.type not in _OURS:
            return case.of_exception(first, first.failure)
        if first.failure.type == "CollectiveMismatchError":
            return case.of_mismatch(first, first.failure)
    if first is None or _is_by_loss(first):
        dead = case.of_dead()
        if dead is not None:
            return dead
    return case.of_waits(found) or case.of_rest(first) or case.of_straggler()


def _without_short_wait(dump: Dump, least_wait: float) -> Dump:
    """Return `dump` without the failure of a message that concerns nobody else.

    A program may look for a message again and again, for a moment each time. That it
    gave up shows in what it answers just then.
    """
    failed = failed_by_waiting(dump)
    is_looking = (
        dump.reason == "signal"
        and failed is not None
        and failed.is_message
        and dump.age(failed) < least_wait
    )
    return replace(dump, failure=None) if is_looking else dump


def held_up(
    dumps: Mapping[int, Dump], endings: Mapping[int, str], waiting: Dump
) -> str:
    """Return what keeps the rank `waiting`, which gave up, from continuing; or "".

    Args:
        dumps: the records of `waiting` and of the ranks for which it waited, if any.
        endings: as for `verdict`.
        waiting: one of `dumps`, of a rank that fails by waiting.
    """
    case = _Case(dumps, endings)
    ring = cycle(waits(dumps, 0.0), dumps)
    if ring:
        return _of_ring(ring).line
    # A rank that has waited only for a moment is on its way.
    longest = max((waiting.age(entry) for entry in waiting.entries), default=0.0)
    return _line("; ".join(case.reasons(waits(dumps, longest / 2), waiting.rank)))


class _Case:
    """The records of a job, and the questions about them."""

    def __init__(self, dumps: Mapping[int, Dump], endings: Mapping[int, str]) -> None:
        self.dumps = dumps
        self.endings = endings

    def first_failure(self) -> Dump | None:
        """Return the earliest failure that is not due to another rank's end, if any."""
        failed = [dump for dump in self.dumps.values() if dump.failure is not None]

        def order(dump: Dump) -> tuple[bool, int]:
            return _is_by_loss(dump), dump.time

        return min(failed, key=order, default=None)

    def of_exception(self, dump: Dump, failure: Failure) -> Verdict:
        head = failure.message.split("\n")[0]
        what = f"{failure.type}: {head}" if head else failure.type
        alike = [
            rank
            for rank, other in sorted(self.dumps.items())
            if other.failure is not None
            and (other.failure.type, other.failure.message)
            == (failure.type, failure.message)
        ]
        text = f"{ranks_text(alike)} raised {what}{_at(failure.frames)}"
        return Verdict("exception", tuple(alike), _line(text))

    def of_mismatch(self, dump: Dump, failure: Failure) -> Verdict:
        calls = self._calls(dump, failure)
        if len(calls) < 2:
            text = f"rank {dump.rank}: {failure.message}{_at(failure.frames)}"
            ranks = tuple(sorted({dump.rank, *failure.ranks}))
            return Verdict("mismatch", ranks, _line(text))
        group = dump.group_of(failure.group)
        counted = Counter(calls.values()).most_common()
        usual, how_many = counted[0]
        odd = [rank for rank in sorted(calls) if calls[rank] != usual]
        if how_many > len(calls) / 2:
            told = "; ".join(f"{calls[rank]}{self._where(rank)}" for rank in odd[:4])
            others = [rank for rank in sorted(calls) if calls[rank] == usual]
            text = (
                f"{ranks_text(odd)} called {told}, where {ranks_text(others)} called "
                f"{usual}{self._where(others[0])}, on group {group}"
            )
            return Verdict("mismatch", tuple(odd), _line(text))
        told = "; ".join(
            f"rank {rank}: {calls[rank]}{self._where(rank)}" for rank in sorted(calls)
        )
        text = f"the ranks of group {group} called different things: {told}"
        return Verdict("mismatch", tuple(sorted(calls)), _line(text))

    def _calls(self, dump: Dump, failure: Failure) -> dict[int, str]:
        """Return the call of each world rank, from the error or the records."""
        group = dump.group_of(failure.group)
        told = {
            group.ranks[int(rank)]: call
            for rank, call in _CALLS.findall(failure.message)
            if int(rank) < len(group.ranks)
        }
        if len(told) >= 2 or "called different things" not in failure.message:
            return told
        number = max((e.number for e in _failed(dump, failure.group)), default=None)
        return {
            rank: str(entry)
            for rank, other in self.dumps.items()
            for entry in _failed(other, failure.group)
            if entry.number == number
        }

    def _where(self, rank: int) -> str:
        """Return the line of a rank's failed call, in brackets."""
        dump = self.dumps.get(rank)
        if dump is None:
            return " (no record)"
        return _at(dump.failure.frames) if dump.failure else ""

    def of_dead(self) -> Verdict | None:
        """Return the verdict on ranks that failed and could not write a record."""
        dead = sorted(
            rank
            for rank, ending in self.endings.items()
            if rank not in self.dumps and not ending.startswith(_NOT_DEAD)
        )
        if not dead:
            return None
        found = waits(self.dumps, 0.0).values()
        waiting = [wait for wait in found if wait.awaited & set(dead)]
        if waiting:
            return self._of_blockers(dead, waiting)
        told = "; ".join(f"rank {rank}: {self.endings[rank]}" for rank in dead[:4])
        return Verdict("dead", tuple(dead), _line(told))

    def of_waits(self, found: Mapping[int, Wait]) -> Verdict | None:
        if not found:
            return None
        ring = cycle(found, self.dumps)
        if ring:
            return _of_ring(ring)
        guilty, waiting = self._blockers(found)
        if not guilty:
            return None
        told = told_cycle(self.dumps, set(guilty) - self.dumps.keys())
        if told is not None:
            return Verdict(told.kind, told.ranks, _line(told.text))
        return self._of_blockers(guilty, waiting)

    def reasons(self, found: Mapping[int, Wait], rank: int) -> Iterable[str]:
        """Yield why `rank` cannot continue, as far as known, link by link."""
        awaited = found[rank].awaited if rank in found else frozenset[int]()
        for other in sorted(awaited & found.keys()):
            yield f"rank {other} waits in {found[other]}"
        guilty, waiting = self._blockers(found)
        for other in guilty[:4]:
            if other in self.dumps or other in self.endings:
                yield self._blocker(other, waiting)[1]

    def _blockers(self, found: Mapping[int, Wait]) -> tuple[list[int], list[Wait]]:
        """Return ranks that are awaited and wait for no rank, and the waits for them.

        Ranks of which more is known than a missing record come first.
        """
        known, unknown = set[int](), set[int]()
        for wait in found.values():
            free = wait.awaited - found.keys()
            (known if wait.is_known else unknown).update(free)
        # A rank without a record may be waiting, too.
        guilty = known & self.dumps.keys() or known or unknown
        waiting = [wait for wait in found.values() if wait.awaited & guilty]
        return sorted(guilty), waiting

    def _of_blockers(self, guilty: Sequence[int], waiting: Sequence[Wait]) -> Verdict:
        kinds, told = zip(
            *(self._blocker(rank, waiting) for rank in guilty), strict=True
        )
        first = min(waiting, key=lambda wait: wait.entry.created)
        who = ranks_text(sorted(wait.rank for wait in waiting))
        verb = "waits" if len(waiting) == 1 else "wait"
        text = f"{'; '.join(told[:4])}; {who} {verb} in {first}"
        return Verdict(kinds[0], tuple(guilty), _line(text))

    def _blocker(self, rank: int, waiting: Sequence[Wait]) -> tuple[Kind, str]:
        """Return the kind of what `rank` does instead of coming, and a description."""
        dump = self.dumps.get(rank)
        if dump is None:
            return self._unseen(rank)
        if dump.failure is not None:
            at = _at(dump.failure.frames)
            failed = failed_by_waiting(dump)
            if failed is not None and failed.is_message and failed.partner < 0:
                return "stuck", f"rank {rank} waited in {failed}{at}"
            return "late", f"rank {rank} came too late{at}"
        sent = _other_tag(dump, rank, waiting)
        main = dump.main_thread
        if main is None:
            return "stuck", f"rank {rank} has not come{sent}"
        if main.inside:
            where = f"{main.inside}(){_at(main.frames)}"
            return "stuck", f"rank {rank} is in {where}{sent}"
        return "stuck", f"rank {rank} is in its own code{_at(main.frames)}{sent}"

    def _unseen(self, rank: int) -> tuple[Kind, str]:
        ending = self.endings.get(rank)
        if ending is None or ending.startswith(_UNKNOWN):
            told = told_of(rank, self.dumps)
            if told is not None:
                return told.kind, f"{told.text} ({ending or 'it left no record'})"
        if ending is None:
            return "missing", f"rank {rank} left no record"
        text = f"rank {rank}: {ending}"
        if ending.startswith(_ALIVE):
            return "stuck", text
        return "missing" if ending.startswith(_UNKNOWN) else "dead", text

    def of_rest(self, first: Dump | None) -> Verdict | None:
        """Return the verdict on failures that show no waits."""
        if first is None or first.failure is None:
            return None
        failure = first.failure
        text = f"rank {first.rank} raised {failure.type}: {failure.message}"
        told = _ACCUSED.search(failure.message)
        ranks = (first.rank,) if told is None else _accused(first, *told.groups())
        return Verdict("failure", ranks, _line(text + _at(failure.frames)))

    def of_straggler(self) -> Verdict | None:
        """Return the verdict on a rank that comes, but always late."""
        straggler = worst_straggler(self.dumps)
        if straggler is None:
            return None
        main = self.dumps[straggler.rank].main_thread
        where = _at(main.frames) if main is not None and not main.inside else ""
        return Verdict("straggler", (straggler.rank,), _line(f"{straggler}{where}"))


def _accused(dump: Dump, ranks: str, group: str) -> tuple[int, ...]:
    """Return the world ranks for ranks of a group that an error names."""
    members = dump.group_of(group).ranks
    named = (int(rank) for rank in ranks.split(", "))
    return tuple(members[rank] for rank in named if rank < len(members))


def _is_by_loss(dump: Dump) -> bool:
    """Return whether the failure only followed from another rank's end."""
    return dump.failure is not None and dump.failure.type == "RankFailedError"


def _of_ring(ring: Sequence[Wait]) -> Verdict:
    text = f"{CYCLE}rank {ring[0].rank} waits in {ring[0]} for "
    text += "".join(
        f"rank {wait.rank}, which waits in {wait} for " for wait in ring[1:]
    )
    text += f"rank {ring[0].rank}"
    return Verdict("cycle", tuple(sorted(wait.rank for wait in ring)), _line(text))


def _failed(dump: Dump, group: str) -> list[Entry]:
    return [
        entry
        for entry in dump.entries
        if entry.state == "failed" and entry.group == group and not entry.is_message
    ]


def _other_tag(dump: Dump, rank: int, waiting: Sequence[Wait]) -> str:
    """Return a remark if `rank` sent to a waiting rank with another tag."""
    for wait in waiting:
        entry, group = wait.entry, wait.group
        if entry.op == "send" or not entry.is_message or entry.tag == ANY_TAG:
            continue
        if wait.rank not in group.ranks:
            continue
        here = group.ranks.index(wait.rank)
        sent = [
            other.tag
            for other in dump.entries
            if other.op == "send" and other.group == entry.group
            if other.partner == here and other.tag != entry.tag
        ]
        if sent and rank in wait.awaited:
            return f", and has sent tag {sent[-1]} to rank {wait.rank}"
    return ""


def _at(frames: Sequence[SourceLine]) -> str:
    return f" ({frames[0]})" if frames else ""


def ranks_text(ranks: Sequence[int]) -> str:
    """Return sorted ranks as text: "rank 3", "ranks 0, 2", "ranks 0-6"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    texts: list[str] = []
    for part in parts:
        few = len(part) < 3
        texts += map(str, part) if few else [f"{part[0]}-{part[-1]}"]
    return f"ranks {', '.join(texts)}"


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
