"""Makes a trace of a job's records: a timeline of its ranks in Chrome's trace format.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
describes the fields. Perfetto (https://ui.perfetto.dev) and chrome://tracing show such
files. A rank is a process in the trace. Each of its groups is a thread, or several if
operations overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from allhands._C import ANY_TAG
from allhands.debug.dumps import Dump
from allhands.debug.spans import Span, by_collective, links, spans_of

__all__ = ["trace"]


class _Tracks:
    """Assigns operations to threads of their rank's process.

    Operations of one thread must not overlap partly, so each goes to the first free
    thread.
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self._numbers: dict[int, int] = {}
        self.names: dict[tuple[int, int], str] = {}
        """By rank and thread."""

    def place(self, span: Span) -> int:
        """Return the thread of `span`; it begins no earlier than previous spans."""
        kind = "messages" if span.entry.is_message else "collectives"
        name = f"{span.group.desc or span.group.name}: {kind}"
        whose = (span.rank, f"{span.group.name} {span.group.ranks} {kind}")
        lanes = self._lanes.setdefault(whose, [])
        for at, (number, busy_until) in enumerate(lanes):
            if busy_until <= span.begin:
                lanes[at] = number, span.end
                return number
        number = self._numbers[span.rank] = self._numbers.get(span.rank, 0) + 1
        lanes.append((number, span.end))
        nth = f" ({len(lanes)})" if len(lanes) > 1 else ""
        self.names[span.rank, number] = name + nth
        return number


def trace(
    dumps: Sequence[Dump], endings: Mapping[int, str], ahead: Mapping[str, int]
) -> dict[str, Any]:
    """Return the trace, to be written as JSON.

    Args:
        dumps: the records of the ranks.
        endings: how ranks ended, or why they have no record.
        ahead: how far each host's clock is ahead of the first host's, in nanoseconds.
    """
    spans = spans_of(dumps, ahead)
    zero = min(
        [span.begin for span in spans]
        + [dump.time - ahead.get(dump.host, 0) for dump in dumps]
    )
    tracks = _Tracks()
    threads = {id(span): tracks.place(span) for span in spans}
    events = [
        *_process_names(dumps, endings),
        *_thread_names(tracks),
        *(event for span in spans for event in _slices(span, threads[id(span)], zero)),
        *_flows(spans, threads, zero),
        *_failures(dumps, ahead, zero),
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "writer": "allhands trace",
            "begin_ns": zero,
            "clocks_ahead_ns": dict(ahead),
        },
    }


def _process_names(
    dumps: Sequence[Dump], endings: Mapping[int, str]
) -> Iterator[dict[str, Any]]:
    names = {rank: f"rank {rank}: {how}" for rank, how in endings.items()}
    for dump in dumps:
        names.setdefault(dump.rank, f"rank {dump.rank}")
        yield _about(dump.rank, "process_labels", labels=f"{dump.host} {dump.pid}")
    for rank, name in sorted(names.items()):
        yield _about(rank, "process_name", name=name)
        yield _about(rank, "process_sort_index", sort_index=rank)


def _thread_names(tracks: _Tracks) -> Iterator[dict[str, Any]]:
    for (rank, thread), name in tracks.names.items():
        yield {**_about(rank, "thread_name", name=name), "tid": thread}
        yield {**_about(rank, "thread_sort_index", sort_index=thread), "tid": thread}


def _about(rank: int, what: str, **told: str | int) -> dict[str, Any]:
    return {"ph": "M", "pid": rank, "tid": 0, "name": what, "args": told}


def _slices(span: Span, thread: int, zero: int) -> Iterator[dict[str, Any]]:
    """Yield the operation, and within it the rank's wait for the last rank."""
    where = {"ph": "X", "pid": span.rank, "tid": thread}
    yield {
        **where,
        "name": span.entry.op,
        "cat": "message" if span.entry.is_message else "collective",
        "ts": _microseconds(span.begin - zero),
        "dur": _microseconds(span.end - span.begin),
        "args": _arguments(span),
    }
    begin = span.begin + 1  # arrows that begin here must belong to the operation
    if span.last is not None and span.waited_until > begin:
        yield {
            **where,
            "name": f"wait for rank {span.last}",
            "cat": "wait",
            "ts": _microseconds(begin - zero),
            "dur": _microseconds(span.waited_until - begin),
            "args": {"rank": span.last},
        }


def _arguments(span: Span) -> dict[str, Any]:
    entry = span.entry
    told: dict[str, Any] = {
        "group": span.group.name,
        "ranks": str(list(span.group.ranks)),
        "number": entry.number,
        "bytes": entry.num_bytes,
        "count": entry.count,
        "dtype": entry.dtype,
        "state": entry.state,
        "async": entry.is_async,
        "thread": entry.thread,
        "queued_us": _microseconds(max(0, (entry.started or 0) - entry.created)),
        "end": "on record" if entry.ended is not None else "estimated",
    }
    if entry.is_under_way:
        told["end"] = "of the record"
    if entry.reduce_op:
        told["reduce_op"] = entry.reduce_op
    if entry.is_message:
        told["peer"] = "any" if span.peer is None else span.peer
        told["tag"] = "any" if entry.tag == ANY_TAG else entry.tag
    elif span.peer is not None:
        told["root"] = span.peer
    if entry.place is not None:
        told["call_site"] = str(entry.place)
    return told


def _flows(
    spans: Sequence[Span], threads: Mapping[int, int], zero: int
) -> Iterator[dict[str, Any]]:
    """Yield arrows from each rank that came to the next, and from sends to recvs."""
    ways = [
        [(span, span.begin) for span in met]
        for met in by_collective(spans).values()
        if len(met) > 1
    ]
    for sent, got in links(spans):
        at = max(sent.begin, got.begin)
        if at < got.end:  # otherwise the clocks are not exact enough
            ways.append([(sent, sent.begin), (got, at)])
    for number, way in enumerate(ways, start=1):
        op = way[0][0].entry.op  # all ends of an arrow have one name
        for at, (span, time) in enumerate(way):
            is_last = at == len(way) - 1
            yield {
                "ph": "f" if is_last else "t" if at else "s",
                **({"bp": "e"} if is_last else {}),
                "id": number,
                "pid": span.rank,
                "tid": threads[id(span)],
                "name": op,
                "cat": "flow",
                "ts": _microseconds(time - zero),
            }


def _failures(
    dumps: Iterable[Dump], ahead: Mapping[str, int], zero: int
) -> Iterator[dict[str, Any]]:
    for dump in dumps:
        if dump.failure is not None:
            yield {
                "ph": "i",
                "s": "p",
                "pid": dump.rank,
                "tid": 0,
                "name": dump.failure.type,
                "cat": "failure",
                "ts": _microseconds(dump.time - ahead.get(dump.host, 0) - zero),
                "args": {"message": dump.failure.message},
            }


def _microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1000
