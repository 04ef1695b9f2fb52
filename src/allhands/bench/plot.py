"""The picture: time and bus bandwidth over size, a curve per peer, and the limits."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from allhands.bench.cells import Cell, readable_size
from allhands.bench.results import Result

__all__ = ["check_plot", "plot"]

_WIDTH, _HEIGHT = 3.4, 2.6  # inches of a panel
_LETTERS = 14  # of the title on an inch
_STYLES = (  # in the order of the peers, ours first
    {"color": "#d1495b", "linewidth": 2.2, "marker": "o", "markersize": 4, "zorder": 3},
    {"color": "#30638e", "linewidth": 1.4, "marker": "s", "markersize": 3},
    {"color": "#6a994e", "linewidth": 1.4, "marker": "^", "markersize": 3},
)
_LIMIT = {"color": "0.45", "linewidth": 1, "linestyle": "--"}


def check_plot(path: Path) -> None:
    """Find out before hours of measuring whether the picture can be made.

    Raises:
        ValueError: matplotlib is missing, or cannot write files of that kind.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("a picture needs matplotlib: pip install matplotlib") from None
    known = Figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in known:
        raise ValueError(f"{str(path)!r}: want a name that ends in .png, .svg or .pdf")


def plot(
    path: Path,
    rows: Sequence[Sequence[Result]],
    limits: dict[str, Any],
    title: str,
) -> None:
    """Write the picture: a line of panels per operation, two panels per rank count.

    `rows` have the results of all peers, ours first; barriers have no size and are left
    out. `limits` is what `measure_limits` returns.
    """
    from matplotlib.figure import Figure

    groups: dict[str, dict[int, list[Sequence[Result]]]] = {}
    for row in rows:
        cell = row[0].cell
        if cell.size:
            groups.setdefault(_name(cell), {}).setdefault(cell.ranks, []).append(row)
    ranks = sorted({row[0].cell.ranks for row in rows})
    lines, columns = max(1, len(groups)), 2 * len(ranks)
    figure = Figure((_WIDTH * columns, _HEIGHT * lines + 0.8), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    for line, (name, by_ranks) in zip(panels, groups.items(), strict=False):
        for index, count in enumerate(ranks):
            time, bandwidth = line[2 * index : 2 * index + 2]
            members = by_ranks.get(count, [])
            _draw_time(time, members, limits)
            _draw_bandwidth(bandwidth, members, limits)
            time.set_title(f"{name}, {count} ranks", fontsize=9, loc="left")
    labels = dict(_labelled(panels))
    figure.legend(labels.values(), labels, loc="outside lower left", ncols=len(labels))
    figure.suptitle(_wrapped(title, _WIDTH * columns), x=0.01, ha="left", fontsize=9)
    figure.savefig(path, dpi=100)


def _name(cell: Cell) -> str:
    """What a line of panels shows; what is usual is not said."""
    usual = {"float32", "numpy", "sync"}
    forms = [x for x in (cell.dtype, cell.arrays, cell.mode) if x not in usual]
    return ", ".join([cell.op, *forms])


def _wrapped(title: str, inches: float) -> str:
    """The lines of `title`, broken where they are longer than the picture is wide."""
    width = int(_LETTERS * inches)
    return "\n".join(textwrap.fill(line, width) for line in title.splitlines())


def _draw_time(
    panel: Any, rows: Sequence[Sequence[Result]], limits: dict[str, Any]
) -> None:
    _draw_curves(panel, rows, lambda result: result.median * 1e6)
    if limits["hand_over"]:
        panel.axhline(limits["hand_over"] * 1e6, label="limit", **_LIMIT)
    panel.set_ylabel("µs", fontsize=8)
    _set_axes(panel, rows)


def _draw_bandwidth(
    panel: Any, rows: Sequence[Sequence[Result]], limits: dict[str, Any]
) -> None:
    _draw_curves(panel, rows, lambda result: result.busbw / 1e9)
    copies = {int(size): rate / 1e9 for size, rate in limits["copy"].items()}
    panel.plot(list(copies), list(copies.values()), label="limit", **_LIMIT)
    panel.set_ylabel("bus bandwidth, GB/s", fontsize=8)
    _set_axes(panel, rows)


def _draw_curves(
    panel: Any, rows: Sequence[Sequence[Result]], value: Callable[[Result], float]
) -> None:
    """A curve per peer; what a peer has not is left out."""
    for style, results in zip(_STYLES, zip(*rows, strict=True), strict=False):
        shown = [result for result in results if not result.absent]
        sizes = [result.cell.size for result in shown]
        panel.plot(sizes, [*map(value, shown)], label=results[0].peer, **style)


def _set_axes(panel: Any, rows: Sequence[Sequence[Result]]) -> None:
    panel.set_yscale("log")
    sizes = sorted({row[0].cell.size for row in rows})
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes, [readable_size(size) for size in sizes], rotation=40)
    panel.minorticks_off()
    panel.tick_params(labelsize=7)
    panel.grid(alpha=0.25)


def _labelled(panels: Any) -> list[tuple[str, Any]]:
    """The curves by name, each name once in the legend."""
    return [
        (label, curve)
        for panel in panels.flat
        for curve, label in zip(*panel.get_legend_handles_labels(), strict=True)
    ]
