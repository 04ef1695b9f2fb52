"""Tables of a job's records for people: one row per rank with its current action."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from rich.box import SIMPLE_HEAD
from rich.table import Table

from allhands.backends.frames import SourceLine
from allhands.debug.dumps import Dump, Entry
from allhands.debug.stragglers import met_in_groups
from allhands.debug.waiting import OperationStats, operation_stats
from allhands.rendezvous.ranges import in_ranges

__all__ = ["cells_of", "figures_of", "ranks_table", "stack_lines", "stats_table"]

_MOST_STACKS = 4  # ranks whose stacks are shown


def ranks_table(dumps: Sequence[Dump], endings: Mapping[int, str]) -> Table:
    """Return a table of all ranks of the world, also of those without a record.

    Neighbours of which nothing is known share a row.
    """
    table = Table(box=SIMPLE_HEAD)
    table.add_column("rank", justify="right", no_wrap=True)
    for head in ("state", "operation", "group"):
        table.add_column(head, no_wrap=True)
    table.add_column("for", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    size = max(dumps[-1].rank + 1, *(dump.world_size for dump in dumps))
    rows: dict[int, tuple[str, ...]] = {
        rank: ("no record", "", "", "", why) for rank, why in endings.items()
    }
    for dump in dumps:
        rows[dump.rank] = cells_of(dump, endings.get(dump.rank))
    known = sorted(rank for rank in rows if rank < size)
    for before, rank in pairwise([-1, *known, size]):
        if before + 1 < rank:
            between = in_ranges(range(before + 1, rank))[1:-1]
            table.add_row(between, "no record")
        if rank < size:
            table.add_row(str(rank), *rows[rank])
    return table


def stack_lines(dumps: Sequence[Dump], ranks: Collection[int]) -> Iterator[str]:
    """Yield where the main threads of these ranks were, line by line; of a few only."""
    blamed = [dump for dump in dumps if dump.rank in ranks]
    for dump in blamed[:_MOST_STACKS]:
        main = dump.main_thread
        frames = dump.failure.frames if dump.failure else main.frames if main else ()
        if frames:
            yield f"stack of rank {dump.rank}, the innermost line first:"
            yield from (f"  {_short(place)}  {place.name}" for place in frames)


def stats_table(dumps: Mapping[int, Dump]) -> Table:
    """Return a table with one row per operation and group: times, and who came last."""
    table = Table(box=SIMPLE_HEAD)
    for head in ("group", "operation"):
        table.add_column(head, no_wrap=True)
    for head in ("calls", "MB", "p50", "p99", "transfer", "waited"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("last most often")
    for group, met in met_in_groups(dumps):
        for told in operation_stats(met):
            table.add_row(str(group), told.op, *figures_of(told))
    return table


def figures_of(told: OperationStats) -> Sequence[str]:
    """Return calls, MB, p50, p99, transfer, longest wait, and the usual last rank."""
    slowest = max(told.times_last, key=lambda rank: told.times_last[rank])
    return (
        str(told.count),
        f"{told.num_bytes / 1e6:.3g}",
        *(_seconds(each) for each in (told.p50, told.p99, told.transfer)),
        _seconds(max(told.waiting.values())),
        f"rank {slowest}: {told.times_last[slowest]}",
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    unit, factor = ("s", 1.0) if value >= 1 else ("ms", 1e3)
    return f"{value * factor:.3g} {unit}" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def cells_of(dump: Dump, ending: str | None) -> tuple[str, ...]:
    """Return state, operation, group, duration and place of a rank with a record."""
    entry = _current(dump)
    state = _state(dump, entry)
    if ending is not None and dump.failure is None:
        state += f"; {ending}"
    place = _place(dump, entry)
    where = "" if place is None else _short(place)
    if entry is None:
        return state, "", "", "", where
    age = f"{dump.age(entry):.1f} s"
    return state, _operation(entry), str(dump.group_of(entry.group)), age, where


def _operation(entry: Entry) -> str:
    if not entry.is_message:
        return f"{entry.op} #{entry.number}"
    peer = "any" if entry.partner < 0 else entry.partner
    return f"{entry.op} {'to' if entry.op == 'send' else 'from'} {peer}"


def _short(place: SourceLine) -> str:
    """Return the path relative to the reader's folder, if this is shorter."""
    with suppress(ValueError):  # there is no relative path
        near = os.path.relpath(place.filename)
        return min(f"{near}:{place.line}", str(place), key=len)
    return str(place)


def _current(dump: Dump) -> Entry | None:
    """Return the operation in which the rank waits or failed, or else its last one."""
    under_way = [entry for entry in dump.entries if entry.is_under_way]
    if under_way:
        return min(under_way, key=lambda entry: entry.is_async)
    return dump.entries[-1] if dump.entries else None


_STATES = {
    "CollectiveTimeoutError": "timed out in",
    "RankFailedError": "lost a rank in",
    "CollectiveMismatchError": "mismatch in",
}


def _state(dump: Dump, entry: Entry | None) -> str:
    if dump.failure is not None:
        return _STATES.get(dump.failure.type, dump.failure.type)
    if entry is not None and entry.is_under_way:
        return "waits in"
    return "runs, after" if entry is not None else "runs"


def _place(dump: Dump, entry: Entry | None) -> SourceLine | None:
    if dump.failure is not None and dump.failure.frames:
        return dump.failure.frames[0]
    if entry is not None and entry.is_under_way and entry.place:
        return entry.place
    main = dump.main_thread
    return main.frames[0] if main and main.frames else None
