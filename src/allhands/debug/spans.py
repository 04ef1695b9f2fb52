"""Spans: from when to when each operation of a job took place, as the records tell.

An end that is not on record, as of a blocking call of few elements, is taken for the
earliest that it can have been: when all had come without whom the rank does not leave,
and no later than when the same thread went on with something else.
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
    """What messages take that come in order."""

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
    """Of the world, as all ranks here."""
    world: str
    entry: Entry
    group: Group
    begin: int
    end: int
    """After `begin`."""
    last: int | None = None
    """Who came last of those for whom this rank had to wait; None: it need not wait,
    or that is not known."""
    waited_until: int = 0
    """When that rank came."""

    @property
    def key(self) -> Key:
        """Which collective it is; of a message nothing."""
        return Key(self.world, self.group.name, self.group.ranks, self.entry.number)

    @property
    def peer(self) -> int | None:
        """Root or peer; None: none, or any source."""
        at = self.entry.partner
        return self.group.ranks[at] if 0 <= at < len(self.group.ranks) else None

    @property
    def awaited(self) -> Iterable[int]:
        """Without whose coming the rank does not leave this collective."""
        root = self.peer
        whom = needed_in(self.entry.op, root == self.rank)
        return whom.among(self.group.ranks, self.rank, root)


def spans_of(dumps: Sequence[Dump], ahead: Mapping[str, int]) -> list[Span]:
    """The operations that have begun, by the time when they did.

    Args:
        dumps: the ranks' records.
        ahead: how far the clock of each host is ahead of the first one's, in
            nanoseconds; it is taken from all times.
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
    """Those of the same collective."""
    found: dict[Key, list[Span]] = {}
    for span in spans:
        if not span.entry.is_message:
            found.setdefault(span.key, []).append(span)
    return found


def _of_rank(dump: Dump, ahead: int) -> Iterator[Span]:
    """With ends as late as they can have been."""
    gone_on: dict[int, int] = {}  # when each thread did
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
    """Bring an end forward that is not on record."""
    if span.entry.ended is None and not span.entry.is_under_way:
        span.end = max(span.begin + 1, min(span.end, earliest))


def links(spans: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """Each send with the recv that got it, as far as that is certain.

    Messages from one rank to another with one tag come in order. So it is certain where
    both ranks have all messages of the group on record, until one failed or was taken
    from whomever it came.
    """
    sent: dict[_Way, list[Span]] = {}
    received: dict[_Way, list[Span]] = {}
    for log in _whole_logs(spans):
        sent.update(_by_way(log, "send"))
        received.update(_by_way(log, "recv"))
    for way, posted in sent.items():
        yield from zip(posted, received.get(way, ()), strict=False)


def _whole_logs(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """All messages of a rank in a group, in order, where none is missing."""
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
    """Those of one rank that are known to be the first ones of their way."""
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
