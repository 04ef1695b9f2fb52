"""The picture of time and bus bandwidth over size: a curve per peer, and the limits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from allhands.bench.cells import Cell
from allhands.bench.page import MEDIUM, SMALL, STYLES, new_page, write
from allhands.bench.peers import FLOOR
from allhands.bench.results import Result, shown_name
from allhands.debug.byte_sizes import readable_size

__all__ = ["fingerprint", "plot"]

# Bandwidths below a hundredth of the best show no more than the times beside them.
_BANDWIDTH_RANGE = 100
_LABEL_DISTANCE = 3  # doublings of the size from one labelled size to the next
_LIMIT = {"color": "0.45", "linewidth": 1, "linestyle": "--"}

Row = Sequence[Result]


def plot(path: Path, rows: Sequence[Row], limits: dict[str, Any], title: str) -> None:
    """Write the picture, with a line of two panels per operation and number of ranks.

    `rows` have the results of all peers, ours first; barriers have no size and are left
    out. `limits` is what `measure_limits` returns. The file's keywords tell the
    `fingerprint` of what it shows.
    """
    lines: dict[str, list[Row]] = {}
    for row in rows:
        if row[0].cell.size:
            lines.setdefault(_name(row[0].cell), []).append(row)
    figure, panels = new_page(max(1, len(lines)))
    for (time, bandwidth), (name, members) in zip(panels, lines.items(), strict=False):
        _draw_time(time, members, limits)
        _draw_bandwidth(bandwidth, members, limits)
        time.set_title(f"{name}: µs", fontsize=MEDIUM, loc="left")
        bandwidth.set_title("bus bandwidth, GB/s", fontsize=MEDIUM, loc="left")
    labels = dict(_labelled(panels))
    figure.legend(
        labels.values(),
        labels,
        loc="outside lower left",
        ncols=len(labels),
        fontsize=MEDIUM,
        frameon=False,
    )
    shown = [row for members in lines.values() for row in members]
    write(figure, title, path, fingerprint(shown, limits))


def fingerprint(rows: Sequence[Row], limits: dict[str, Any]) -> str:
    """Return what tells a picture of these results from one of any others."""
    figures = [[result.as_json() for result in row] for row in rows]
    text = json.dumps([figures, limits], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _name(cell: Cell) -> str:
    """Return the name of a line of panels, without what is usual."""
    usual = {"float32", "numpy", "sync"}
    forms = [x for x in (cell.dtype, cell.arrays, cell.mode) if x not in usual]
    where = f" on {cell.hosts} hosts" if cell.hosts > 1 else ""
    return ", ".join([cell.op, f"{cell.ranks} ranks{where}", *forms])


def _draw_time(panel: Any, rows: Sequence[Row], limits: dict[str, Any]) -> None:
    _draw_curves(panel, rows, lambda result: result.median * 1e6)
    if limits["hand_over"] and rows[0][0].cell.hosts == 1:
        panel.axhline(limits["hand_over"] * 1e6, label="limit", **_LIMIT)
    _set_axes(panel, rows)


def _draw_bandwidth(panel: Any, rows: Sequence[Row], limits: dict[str, Any]) -> None:
    _draw_curves(panel, rows, lambda result: result.busbw / 1e9)
    copies = {size: rate / 1e9 for size, rate in limits["copy"].items()}
    if copies:
        panel.plot(list(copies), list(copies.values()), label="limit", **_LIMIT)
    _set_axes(panel, rows)
    top = 1.5 * max(panel.dataLim.y1, 1e-9)
    bottom = top / _BANDWIDTH_RANGE
    panel.set_ylim(bottom, top)
    rates = [(r.cell.size, r.busbw / 1e9) for row in rows for r in row if not r.absent]
    if seen := [size for size, rate in rates if rate >= bottom]:
        panel.set_xlim(left=min(seen) / 2)


def _draw_curves(
    panel: Any, rows: Sequence[Row], value: Callable[[Result], float]
) -> None:
    """Draw a curve per peer; cells that a peer lacks are left out."""
    styles = cycle(STYLES)
    for results in zip(*rows, strict=True):
        style = _LIMIT if results[0].peer == FLOOR else next(styles)
        shown = [result for result in results if not result.absent]
        sizes = [result.cell.size for result in shown]
        panel.plot(
            sizes, [*map(value, shown)], label=shown_name(results[0].peer), **style
        )


def _set_axes(panel: Any, rows: Sequence[Row]) -> None:
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    sizes = sorted({row[0].cell.size for row in rows})
    panel.set_xscale("log", base=2)
    named = _apart(sizes)
    panel.set_xticks(sizes, [readable_size(s) if s in named else "" for s in sizes])
    panel.minorticks_off()
    panel.tick_params(labelsize=SMALL)
    panel.grid(alpha=0.25)


def _apart(sizes: Sequence[int]) -> set[int]:
    """Return the sizes to label: the largest, and on down those that have room."""
    named = [sizes[-1]]
    for size in reversed(sizes):
        if size << _LABEL_DISTANCE <= named[-1]:
            named.append(size)
    return set(named)


def _labelled(panels: Any) -> list[tuple[str, Any]]:
    """Return the curves by name, each name once for the legend."""
    return [
        (label, curve)
        for panel in panels.flat
        for curve, label in zip(*panel.get_legend_handles_labels(), strict=True)
    ]
