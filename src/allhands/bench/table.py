"""The results as text: a table per operation and form, and a summary at the end.

A table that is wider than its console leaves out columns, the least needed first, so
that the others are shown in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from allhands.bench.cells import Cell
from allhands.bench.results import Result, geometric_mean, ratio, shown_name
from allhands.debug.byte_sizes import readable_size

__all__ = ["form", "results_table", "summary_table"]

Row = Sequence[Result]
# with only one of the two, a dumb terminal would have 80 columns
_UNBOUNDED = Console(width=1000, height=1000)
_FORM_WIDTH = 23  # of a form's text, which may be broken


def form(cell: Cell) -> str:
    """Return what the cells of one table have in common."""
    where = f" on {cell.hosts} hosts" if cell.hosts > 1 else ""
    shown = [f"{cell.op}, {cell.ranks} ranks{where}"]
    shown += [] if cell.op == "barrier" else [cell.dtype, cell.arrays]
    return ", ".join([*shown, cell.mode])


@dataclass(frozen=True)
class _Column:
    """One figure of a row; columns with a smaller `need` are left out first."""

    head: str
    text: Callable[[Row], str]
    need: int


_ALWAYS = 5


def results_table(rows: Sequence[Row], copy: dict[int, float], width: int) -> Table:
    """Return a table with a line per size of one `form`.

    `rows` have all peers' results, ours first. `copy` has the bytes per second that one
    core copies, by size. The table has at most `width` characters, if that is possible.
    """
    columns = _columns([shown_name(result.peer) for result in rows[0]], copy)
    for least in range(_ALWAYS + 1):
        table = _table([column for column in columns if column.need >= least], rows)
        if _width(table) <= width:
            break
    return table


def _table(columns: Sequence[_Column], rows: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for column in columns:
        is_first = column is columns[0]
        justify: Literal["left", "right"] = "left" if is_first else "right"
        table.add_column(column.head, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*[column.text(row) for column in columns])
    return table


def _width(table: Table) -> int:
    return _UNBOUNDED.measure(table).maximum


def _columns(peers: Sequence[str], copy: dict[int, float]) -> list[_Column]:
    def of_a_copy(row: Row) -> str:
        rate = copy.get(row[0].cell.size)
        return f"{row[0].busbw / rate:.2f}" if rate and _has_bytes(row[0]) else ""

    columns = [
        _Column("size", lambda row: _size(row[0].cell), _ALWAYS),
        _Column(f"{peers[0]}\nµs", lambda row: _median(row[0]), _ALWAYS),
        _Column("p99\nµs", lambda row: _p99(row[0]), 3),
        _Column("algbw\nGB/s", _algbw, 1),
        _Column("busbw\nGB/s", _busbw, 4),
    ]
    columns += [_Column("of a\ncopy", of_a_copy, 2)] if copy else []
    for index, peer in enumerate(peers[1:], start=1):
        columns += _columns_of_another(index, peer)
    return columns


def _columns_of_another(index: int, peer: str) -> list[_Column]:
    def times(row: Row) -> str:
        value = ratio(row[index], row[0])
        return "" if value is None else f"{value:,.2f}"

    return [
        _Column(f"{peer}\nµs", lambda row: _median(row[index]), _ALWAYS),
        _Column("p99\nµs", lambda row: _p99(row[index]), 0),
        _Column("\nx", times, _ALWAYS),
    ]


def _size(cell: Cell) -> str:
    return "" if cell.op == "barrier" else readable_size(cell.size)


def _median(result: Result) -> str:
    return "-" if result.absent else _microseconds(result.median)


def _p99(result: Result) -> str:
    return "-" if result.absent else _microseconds(result.p99)


def _microseconds(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _has_bytes(result: Result) -> bool:
    return not result.absent and result.cell.num_bytes > 0


def _algbw(row: Row) -> str:
    return f"{row[0].algbw / 1e9:.3g}" if _has_bytes(row[0]) else ""


def _busbw(row: Row) -> str:
    return f"{row[0].busbw / 1e9:.3g}" if _has_bytes(row[0]) else ""


def summary_table(rows: Sequence[Row], width: int) -> Table | None:
    """Return how many times as long others take, by operation; None without others.

    The table has at most `width` characters, if that is possible.
    """
    if len(rows[0]) < 2:
        return None
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(form(row[0].cell), []).append(row)
    for num_figures in (3, 2, 1):
        table = _summaries(groups, num_figures)
        if _UNBOUNDED.measure(table).minimum <= width:
            break
    return table


def _summaries(groups: dict[str, list[Row]], num_figures: int) -> Table:
    """Return a line per form, with `num_figures` figures of each other peer."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("operation", min_width=_FORM_WIDTH)
    first = next(iter(groups.values()))[0]
    for result in first[1:]:
        heads = [f"{shown_name(result.peer)}\nmean", "worst", "in"][:num_figures]
        for head in heads:
            is_text = head == "in"
            justify: Literal["left", "right"] = "left" if is_text else "right"
            table.add_column(head, justify=justify, no_wrap=True)
    for name, members in groups.items():
        shown = [name]
        for index in range(1, len(first)):
            shown += _summary(members, index)[:num_figures]
        table.add_row(*shown)
    return table


def _summary(rows: Sequence[Row], index: int) -> list[str]:
    pairs = [(ratio(row[index], row[0]), row[0].cell) for row in rows]
    known = [(times, cell) for times, cell in pairs if times is not None]
    if not known:
        return ["-", "-", ""]
    worst, cell = min(known, key=lambda pair: pair[0])
    mean = geometric_mean(times for times, _ in known)
    return [f"{mean:,.2f}", f"{worst:,.2f}", _size(cell)]
