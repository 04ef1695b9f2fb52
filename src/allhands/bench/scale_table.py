"""The tables of `allhands bench --scale`: a line for each number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from allhands.bench.scale import FIGURES, Scale, growth

__all__ = ["scale_tables"]

# There are two, as one would not fit a terminal of 80 columns.
_TABLES = {
    "start and end": [
        *("init", "first_barrier", "destroy", "start_cpu", "requests", "store_bytes"),
    ],
    "operations and memory": [
        *("all_reduce", "all_reduce_cpu", "broadcast", "broadcast_cpu"),
        *("barrier", "barrier_cpu", "segment", "pss"),
    ],
}


def scale_tables(rows: Sequence[Scale]) -> Iterator[tuple[str, Table]]:
    """Yield the tables with their titles; the last line says how a figure grows."""
    for title, names in _TABLES.items():
        table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        table.add_column("ranks")
        for name in names:
            figure = FIGURES[name]
            unit = f"\n{figure.unit}" if figure.unit else ""
            table.add_column(figure.title + unit, justify="right")
        for row in rows:
            table.add_row(str(row.ranks), *[_shown(row, name) for name in names])
        if len(rows) > 1:
            table.add_section()
            grown = [growth(rows, name) for name in names]
            shown = ["-" if x is None else f"x {x:.2f}" for x in grown]
            table.add_row("twice", *shown)
        yield title, table


def _shown(row: Scale, name: str) -> str:
    value = row.median(name) / FIGURES[name].size
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
