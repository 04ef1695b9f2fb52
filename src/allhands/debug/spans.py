"""Spans: the begin and end of each operation of a job, according to the records.

An end may be missing from the record, as for a blocking call of few elements. Then the
earliest possible end is used: the time when all ranks had come that the rank needs in
order to leave, but no later than the next operation of the same thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from allhands._C import ANY_TAG
from allhands.debug.dumps import Dump, Entry, Group
from allhands.debug.whom import needed_in

__all__ = ["Key", "Span", "by_collective", "links", "spans_of"]


class Key(NamedTuple):
    """A collective, the same on all its ranks."""

    world: str
    group: str
    ranks: tuple[int, ...]
    number: int


class _Way(NamedTuple):
    """A sequence of messages that arrive in order."""

    world: str
    group: str
    ranks: tuple[int, ...]
    sender: int
    receiver: int
    tag: int


@dataclass
class Span:
    """One operation on one rank. Times are nanoseconds since 1970."""

    rank: int
    """A world rank, as all ranks here."""
    world: str
    entry: Entry
    group: Group
    begin: int
    end: int
    """Later than `begin`."""
    last: int | None = None
    """The last of the ranks for which this rank had to wait.

    None if it need not wait, or if this is unknown.
    """
    waited_until: int = 0
    """The time when that rank came."""

    @property
    def key(self) -> Key:
        """Identifies a collective; it has no meaning for a message."""
        return Key(self.world, self.group.name, self.group.ranks, self.entry.number)

    @property
    def peer(self) -> int | None:
        """The root or peer; None for none, or for any source."""
        at = self.entry.partner
        return self.group.ranks[at] if 0 <= at < len(self.group.ranks) else None

    @property
    def awaited(self) -> Iterable[int]:
        """The ranks that must come before this rank can leave the collective."""
        root = self.peer
        whom = needed_in(self.entry.op, root == self.rank)
        return whom.among(self.group.ranks, self.rank, root)


def spans_of(dumps: Sequence[Dump], ahead: Mapping[str, int]) -> list[Span]:
    """Return the operations that have begun, sorted by their begin.

    Args:
        dumps: the records of the ranks.
        ahead: how far the clock of each host is ahead of the first host's, in
            nanoseconds. This is subtracted from all times.
    """
    found = [span for dump in dumps for span in _of_rank(dump, ahead.get(dump.host, 0))]
    for met in by_collective(found).values():
        came = {span.rank: span.begin for span in met}
        for span in met:
            _say_for_whom(span, came)
            _bound(span, max((came.get(rank, 0) for rank in span.awaited), default=0))
    sent = {id(got): send.begin for send, got in links(found)}
    for span in found:
        if span.entry.is_message:
            _bound(span, sent.get(id(span), 0))
    return sorted(found, key=lambda span: span.begin)


def by_collective(spans: Iterable[Span]) -> dict[Key, list[Span]]:
    """Return the spans by collective."""
    found: dict[Key, list[Span]] = {}
    for span in spans:
        if not span.entry.is_message:
            found.setdefault(span.key, []).append(span)
    return found


def _of_rank(dump: Dump, ahead: int) -> Iterator[Span]:
    """Yield the spans of a rank, with the latest possible ends."""
    gone_on: dict[int, int] = {}  # when each thread continued
    for entry in reversed(dump.entries):
        if entry.started is None:
            continue
        group = dump.group_of(entry.group)
        if entry.ended is not None:
            end = entry.ended
        elif entry.is_under_way:
            end = dump.time
        else:
            end = gone_on.get(entry.thread, dump.time)
        begin = entry.started - ahead
        if dump.rank in group.ranks:
            yield Span(
                dump.rank, dump.world, entry, group, begin, max(begin + 1, end - ahead)
            )
        if not entry.is_async:
            gone_on[entry.thread] = entry.started


def _say_for_whom(span: Span, came: Mapping[int, int]) -> None:
    awaited = [rank for rank in span.awaited if rank != span.rank]
    if awaited and all(rank in came for rank in awaited):
        last = max(awaited, key=lambda rank: came[rank])
        if came[last] > span.begin:
            span.last, span.waited_until = last, min(came[last], span.end)


def _bound(span: Span, earliest: int) -> None:
    """Move an end that is not on record to the earliest possible time."""
    if span.entry.ended is None and not span.entry.is_under_way:
        span.end = max(span.begin + 1, min(span.end, earliest))


def links(spans: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """Yield each send with the recv that received it, as far as this is certain.

    Messages from one rank to another with one tag arrive in order. So the pairs are
    certain if both ranks have all messages of the group on record, up to the first one
    that failed or was received from any source.
    """
    sent: dict[_Way, list[Span]] = {}
    received: dict[_Way, list[Span]] = {}
    for log in _whole_logs(spans):
        sent.update(_by_way(log, "send"))
        received.update(_by_way(log, "recv"))
    for way, posted in sent.items():
        yield from zip(posted, received.get(way, ()), strict=False)


def _whole_logs(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Yield all messages of a rank in a group, in order, if none is missing."""
    logs: dict[tuple[str, str, tuple[int, ...], int], list[Span]] = {}
    for span in spans:
        if span.entry.is_message:
            place = span.world, span.group.name, span.group.ranks, span.rank
            logs.setdefault(place, []).append(span)
    for log in logs.values():
        log.sort(key=lambda span: span.entry.number)
        if log[-1].entry.number == len(log):
            yield log


def _by_way(log: Sequence[Span], op: str) -> dict[_Way, list[Span]]:
    """Return one rank's messages that are certainly the first of their sequence."""
    found: dict[_Way, list[Span]] = {}
    unclear = set[int]()  # tags
    for span in log:
        tag, peer = span.entry.tag, span.peer
        if span.entry.op != op or tag in unclear:
            continue
        if tag == ANY_TAG:
            break
        if peer is None or span.entry.state == "failed":
            unclear.add(tag)
            continue
        ends = (span.rank, peer) if op == "send" else (peer, span.rank)
        way = _Way(span.world, span.group.name, span.group.ranks, *ends, tag)
        found.setdefault(way, []).append(span)
    return found
