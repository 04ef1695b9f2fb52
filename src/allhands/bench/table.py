"""The results for people: a table per operation and form, a summary at the end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from allhands.bench.cells import Cell, readable_size
from allhands.bench.results import Result, geometric_mean, ratio

__all__ = ["form", "results_table", "summary_table"]


def form(cell: Cell) -> str:
    """What the cells of one table have in common."""
    shown = [f"{cell.op}, {cell.ranks} ranks"]
    shown += [] if cell.op == "barrier" else [cell.dtype, cell.arrays]
    return ", ".join([*shown, cell.mode])


def results_table(rows: Sequence[Sequence[Result]], copy: dict[int, float]) -> Table:
    """A line per size of one `form`; `rows` have all peers' results, ours first.

    `copy` has the bytes per second that one core copies, by size.
    """
    ours, *others = rows[0]
    table = Table(box=SIMPLE_HEAD)
    table.add_column("size")
    for name in (
        f"{ours.peer}\nµs",
        "p99\nµs",
        "algbw\nGB/s",
        "busbw\nGB/s",
        "of a\ncopy",
    ):
        table.add_column(name, justify="right")
    for other in others:
        for name in (f"{other.peer}\nµs", "p99\nµs", "\nx"):
            table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*_line(row, copy))
    return table


def _line(row: Sequence[Result], copy: dict[int, float]) -> list[str]:
    ours, *others = row
    shown = ["" if ours.cell.op == "barrier" else readable_size(ours.cell.size)]
    shown += [*_times(ours), *_bandwidths(ours, copy.get(ours.cell.size))]
    for other in others:
        times = ratio(other, ours)
        shown += [*_times(other), "" if times is None else f"{times:,.2f}"]
    return shown


def _times(result: Result) -> list[str]:
    if result.absent:
        return ["-", "-"]
    return [_microseconds(seconds) for seconds in (result.median, result.p99)]


def _microseconds(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _bandwidths(result: Result, copy: float | None) -> list[str]:
    if result.absent or not result.cell.num_bytes:
        return ["", "", ""]
    rates = [f"{rate / 1e9:.3g}" for rate in (result.algbw, result.busbw)]
    return [*rates, f"{result.busbw / copy:.2f}" if copy else ""]


def summary_table(rows: Sequence[Sequence[Result]]) -> Table | None:
    """How many times as long the others take, by operation; None without others."""
    names = [result.peer for result in rows[0][1:]]
    if not names:
        return None
    table = Table(box=SIMPLE_HEAD)
    table.add_column("operation")
    for name in names:
        table.add_column(f"{name}\nmean", justify="right")
        table.add_column("worst", justify="right")
        table.add_column("in")
    groups: dict[str, list[Sequence[Result]]] = {}
    for row in rows:
        groups.setdefault(form(row[0].cell), []).append(row)
    for name, members in groups.items():
        shown = [name]
        for index in range(1, len(rows[0])):
            shown += _summary(members, index)
        table.add_row(*shown)
    return table


def _summary(rows: Sequence[Sequence[Result]], index: int) -> list[str]:
    pairs = [(ratio(row[index], row[0]), row[0].cell) for row in rows]
    known = [(times, cell) for times, cell in pairs if times is not None]
    if not known:
        return ["-", "-", ""]
    worst, cell = min(known, key=lambda pair: pair[0])
    mean = geometric_mean(times for times, _ in known)
    where = "" if cell.op == "barrier" else readable_size(cell.size)
    return [f"{mean:,.2f}", f"{worst:,.2f}", where]
