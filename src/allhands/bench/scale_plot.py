"""The picture of `allhands bench --scale`: the figures over the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allhands.bench.page import MEDIUM, SMALL, STYLES, new_page, write
from allhands.bench.scale import FIGURES, Scale

__all__ = ["plot_scale"]

_PANELS = {
    "start and end, ms": ["init", "first_barrier", "destroy"],
    "CPU of all ranks for these, ms": ["start_cpu"],
    "an operation, µs": ["all_reduce", "broadcast", "barrier"],
    "CPU of all ranks for it, µs": ["all_reduce_cpu", "broadcast_cpu", "barrier_cpu"],
    "through the store": ["requests", "store_bytes"],
    "memory, MB": ["segment", "pss"],
}


def plot_scale(path: Path, rows: Sequence[Scale], title: str) -> None:
    """Write the picture; a dashed line shows growth in proportion to the ranks."""
    figure, panels = new_page(len(_PANELS) // 2)
    for panel, (name, members) in zip(panels.flat, _PANELS.items(), strict=True):
        _draw(panel, rows, members)
        panel.set_title(name, fontsize=MEDIUM, loc="left")
    write(figure, f"{title}\ndashed: as the number of ranks", path)


def _draw(panel: Any, rows: Sequence[Scale], names: Sequence[str]) -> None:
    ranks = [row.ranks for row in rows]
    for style, name in zip(STYLES, names, strict=False):
        known = FIGURES[name]
        values = [row.median(name) / known.size for row in rows]
        unit = f", {known.unit}" if name == "store_bytes" else ""
        panel.plot(ranks, values, label=_label(name) + unit, **style)
        if name == names[0]:
            linear = [values[0] * count / ranks[0] for count in ranks]
            panel.plot(ranks, linear, color="0.45", linewidth=1, linestyle="--")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    panel.set_xticks(ranks, list(map(str, ranks)))
    panel.minorticks_off()
    panel.tick_params(labelsize=SMALL)
    panel.grid(alpha=0.25)
    if len(names) > 1:
        panel.legend(fontsize=SMALL, frameon=False)


def _label(name: str) -> str:
    figure = FIGURES.get(name.removesuffix("_cpu"), FIGURES[name])
    return figure.title.replace("_\n", "_").replace("\n", " ")
