"""The table of `allhands top`: the worst rows that fit.

Its lines are put together here, not by rich's own tables: on CPUs that ranks use, these
took more time than all that `allhands top` does else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from allhands.debug.top.row import Current, RankRow

__all__ = ["KEYS", "sorted_rows", "table_of"]

KEYS: dict[str, tuple[str, Callable[[RankRow], Any]]] = {
    "l": ("late", lambda row: -row.figures.awaited),
    "c": ("comm", lambda row: -row.figures.in_communication),
    "o": ("op/s", lambda row: -row.figures.operations_per_second),
    "b": ("B/s", lambda row: -row.figures.bytes_per_second),
    "f": ("for", lambda row: -_age(row.operation)),
    "p": ("CPU", lambda row: -row.cpu),
    "s": ("state", lambda row: row.state),
    "r": ("rank", lambda row: row.rank),
}
"""By key: the head of a column, and the value by which it sorts rows."""

_WIDTHS = {
    "rank": 4,
    "state": 14,
    "operation": 19,
    "group": 6,
    "for": 5,
    "op/s": 5,
    "B/s": 5,
    "comm": 4,
    "late": 4,
    "CPU": 5,
}
"""Characters in a terminal of 80 columns."""
_LEFT = ("state", "operation", "group")
_LEAST_MORE = -10  # columns that a narrow terminal lacks and names can do without
_STYLES = {"dead": "bold red", "stopped": "bold red", "waits": "yellow", "left": "dim"}


def sorted_rows(rows: Sequence[RankRow], key: str) -> list[RankRow]:
    """Sort by the key's column, the worst first; ranks that do not run come first.

    Raises:
        KeyError: there is no such key.
    """
    _, value = KEYS[key]
    is_by_rank = key == "r"
    return sorted(
        rows,
        key=lambda row: (
            not is_by_rank and row.state not in ("dead", "stopped"),
            value(row),
            row.rank,
        ),
    )


def table_of(rows: Sequence[RankRow], key: str, width: int) -> Text:
    """Return a head and a line for each row, as wide as the terminal.

    The head of the column by which the rows are sorted is marked.
    """
    # Additional width goes to the longest names, and they give what is missing.
    more = max(_LEAST_MORE, width - 80)
    for_group = more // 3 if more > 0 else more // 10
    widths = {**_WIDTHS, "group": 6 + for_group, "operation": 19 + more - for_group}
    marked, _ = KEYS[key]
    table = Text(no_wrap=True, overflow="crop")
    for number, (head, columns) in enumerate(widths.items()):
        table.append(" " if number else "")
        is_marked = head == marked
        table.append(
            _fitted(head, head, columns), "bold reverse" if is_marked else "bold"
        )
    for row in rows:
        # As text: names may look like markup.
        cells = zip(_cells(row), widths.items(), strict=True)
        line = " ".join(_fitted(cell, *column) for cell, column in cells)
        table.append(f"\n{line}", _STYLES.get(row.state))
    return table


def _fitted(text: str, head: str, columns: int) -> str:
    """Return the text as wide as the column with this head."""
    missing = columns - cell_len(text)
    if missing < 0:
        return f"{set_cell_size(text, columns - 1)}\u2026"
    return text + " " * missing if head in _LEFT else " " * missing + text


def _cells(row: RankRow) -> tuple[str, ...]:
    operation, told = row.operation, row.figures
    names = ("", "") if operation is None else (_name(operation), operation.group)
    age = None if operation is None else operation.seconds
    shares = (told.in_communication, told.awaited, row.cpu)
    return (
        str(row.rank),
        _state(row),
        *names,
        "" if age is None else _seconds(age),
        _number(told.operations_per_second),
        _number(told.bytes_per_second),
        *(f"{share:.0%}" for share in shares),
    )


def _state(row: RankRow) -> str:
    if row.state != "waits":
        return row.state
    others = f"+{row.num_awaited - 1}" if row.num_awaited > 1 else ""
    return f"waits for {row.waits_for[0]}{others}"


def _name(operation: Current) -> str:
    to = {"send": "to", "recv": "from", "probe": "from"}.get(operation.op)
    if to is None:
        return f"{operation.op} #{operation.sequence}"
    peer = "any" if operation.peer is None else operation.peer
    return f"{operation.op} {to} {peer}"


def _age(operation: Current | None) -> float:
    return 0.0 if operation is None else operation.seconds or 0.0


def _seconds(value: float) -> str:
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if value * factor < 999.5:
            return f"{value * factor:.0f}{unit}"
    return f"{value:.1f}s" if value < 99.95 else f"{value:.0f}s"


def _number(value: float) -> str:
    """Return at most five characters, up to 999 T."""
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1e3
    return f"{value:.3g}T"
