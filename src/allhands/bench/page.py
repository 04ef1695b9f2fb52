"""The common layout of the pictures: as wide as a page, with letters readable there."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

__all__ = ["MEDIUM", "SMALL", "STYLES", "check_plot", "new_page", "write"]

_WIDTH, _HEIGHT = 7.0, 1.8  # inches: of the picture, of a line of panels
_LETTERS = 16  # of the title, per inch
_DOTS = 150  # per inch
SMALL, MEDIUM = 7.5, 8.5  # sizes of letters, in points
STYLES = (  # in the order of the peers, ours first
    {"color": "#d1495b", "linewidth": 2.2, "marker": "o", "markersize": 4, "zorder": 3},
    {"color": "#30638e", "linewidth": 1.4, "marker": "s", "markersize": 3},
    {"color": "#6a994e", "linewidth": 1.4, "marker": "^", "markersize": 3},
    {"color": "#8e6bbf", "linewidth": 1.4, "marker": "v", "markersize": 3},
    {"color": "#d08c30", "linewidth": 1.4, "marker": "D", "markersize": 3},
    {"color": "#4a9d9c", "linewidth": 1.4, "marker": "P", "markersize": 3},
)


def check_plot(path: Path) -> None:
    """Check, before hours of measuring, that the picture can be made.

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


def new_page(lines: int) -> tuple[Any, Any]:
    """Return a picture with this many lines, and its panels, two per line."""
    from matplotlib.figure import Figure

    figure = Figure((_WIDTH, _HEIGHT * lines + 0.7), layout="constrained")
    return figure, figure.subplots(lines, 2, squeeze=False)


def write(figure: Any, title: str, path: Path, keywords: str = "") -> None:
    """Give the picture its title, and write it to `path` with these keywords."""
    figure.suptitle(_wrapped(title), x=0.01, ha="left", fontsize=SMALL)
    known = path.suffix in (".png", ".svg", ".pdf")  # others have no place for words
    metadata = {"Keywords": keywords} if keywords and known else None
    figure.savefig(path, dpi=_DOTS, metadata=metadata)


def _wrapped(title: str) -> str:
    """Return `title` with its lines broken where they are wider than the picture."""
    width = int(_LETTERS * _WIDTH)
    return "\n".join(textwrap.fill(line, width) for line in title.splitlines())
