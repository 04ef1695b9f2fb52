"""The facts of a job's records that the debug page shows, as plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from allhands.debug.dumps import Dump, Entry, Thread
from allhands.debug.ended_collectives import clocks_of
from allhands.debug.job_record import JobRecord
from allhands.debug.page.job_view import JobView
from allhands.debug.stragglers import met_in_groups
from allhands.debug.table import cells_of, figures_of
from allhands.debug.trace import trace
from allhands.debug.verdict import ranks_text, verdict
from allhands.debug.waiting import OperationStats, operation_stats

__all__ = ["facts_of", "stats_of"]

_MOST_OPERATIONS = 40  # of a rank, in its table
_MOST_DRAWN, _MOST_DRAWN_EACH = 4000, 200  # in the timeline


def facts_of(view: JobView, job: JobRecord) -> dict[str, Any]:
    """Return all facts."""
    found = verdict(job.dumps, job.endings)
    return {
        "rank": view.rank,
        "size": view.size,
        "time_ns": max(dump.time for dump in job.dumps),
        "verdict": None if found is None else vars(found),
        "silent": list(_silent(view, job)),
        "ranks": [_rank(dump) for dump in job.dumps],
        "groups": _groups(job.dumps),
        "stats": [
            [name, desc, told.op, *figures_of(told)]
            for (name, desc), stats in stats_of(job)
            for told in stats
        ],
        "timeline": _timeline(job),
    }


def stats_of(
    job: JobRecord,
) -> Iterator[tuple[tuple[str, str], list[OperationStats]]]:
    """Yield the figures of each group for which all ranks have a record here.

    Each comes with the group's name and description.
    """
    for group, met in met_in_groups({dump.rank: dump for dump in job.dumps}):
        yield (group.name, group.desc), operation_stats(met)


def _silent(view: JobView, job: JobRecord) -> Iterator[dict[str, Any]]:
    """Yield the ranks without a record, grouped by reason."""
    told = {dump.rank for dump in job.dumps}
    by_reason = dict[str, list[int]]()
    for rank in range(view.size):
        if rank not in told:
            why = job.endings.get(rank, "is not known to the rank that serves this")
            by_reason.setdefault(why, []).append(rank)
    for why, ranks in by_reason.items():
        yield {"ranks": ranks_text(ranks), "numbers": ranks, "why": why}


def _rank(dump: Dump) -> dict[str, Any]:
    state, operation, group, age, where = cells_of(dump, None)
    shown = dump.entries[-_MOST_OPERATIONS:]
    under_way = [
        each for each in dump.entries if each.is_under_way and each not in shown
    ]
    return {
        "rank": dump.rank,
        "host": dump.host,
        "pid": dump.pid,
        "state": state,
        "operation": operation,
        "group": group,
        "for": age,
        "where": where,
        "threads": [_thread(each) for each in dump.threads],
        "operations": [_operation(dump, each) for each in (*under_way, *shown)],
        "num_operations": len(dump.entries),
    }


def _thread(thread: Thread) -> dict[str, Any]:
    return {
        "name": thread.name,
        "is_main": thread.is_main,
        "inside": thread.inside,
        "frames": [f"{place.name}  {place}" for place in thread.frames],
    }


def _operation(dump: Dump, entry: Entry) -> dict[str, Any]:
    took = None
    if entry.started is not None and entry.ended is not None:
        took = (entry.ended - entry.started) / 1e9
    return {
        "group": str(dump.group_of(entry.group)),
        "number": entry.number,
        "call": str(entry),
        "state": entry.state,
        "is_under_way": entry.is_under_way,
        "is_async": entry.is_async,
        "age": dump.age(entry),
        "took": took,
        "where": str(entry.place or ""),
    }


def _groups(dumps: Sequence[Dump]) -> list[dict[str, Any]]:
    """Return each group once, with the progress of each of its ranks."""
    found = dict[tuple[str, tuple[int, ...]], dict[str, Any]]()
    for dump in dumps:
        last = dict[str, list[int]]()  # issued, ended
        for entry in dump.entries:
            if not entry.is_message:
                numbers = last.setdefault(entry.group, [0, 0])
                numbers[0] = max(numbers[0], entry.number)
                if not entry.is_under_way:
                    numbers[1] = max(numbers[1], entry.number)
        for group in dump.groups.values():
            told = found.setdefault(
                (group.name, group.ranks),
                {
                    "name": group.name,
                    "desc": group.desc,
                    "size": len(group.ranks),
                    "ranks": ranks_text(sorted(group.ranks)),
                    "reached": [],
                },
            )
            told["reached"].append([dump.rank, *last.get(group.name, [0, 0])])
    return list(found.values())


def _timeline(job: JobRecord) -> dict[str, Any]:
    """Return the last operations in the form of `allhands trace`."""
    most = max(1, min(_MOST_DRAWN_EACH, _MOST_DRAWN // len(job.dumps)))
    cut = [dump for dump in job.dumps if len(dump.entries) > most]
    # Before this time, operations are missing.
    begin = max((dump.entries[-most].created for dump in cut), default=0)
    dumps = [
        replace(
            dump,
            entries=tuple(
                each
                for each in dump.entries[-most:]
                if each.is_under_way or each.created >= begin
            ),
        )
        for dump in job.dumps
    ]
    return trace(dumps, job.endings, clocks_of(job.dumps))
