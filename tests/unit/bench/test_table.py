"""The tables and the picture of known figures."""

import io
import sys

import pytest
from rich.console import Console

from allhands.bench.cells import Cell
from allhands.bench.plot import check_plot, plot
from allhands.bench.results import Result
from allhands.bench.table import results_table, summary_table

MIB = 1 << 20
LIMITS = {"copy": {MIB: 10.0 * MIB}, "wake_up": 3e-5, "hand_over": 2e-7}


def row(op, size, ours, gloo, ranks=2):
    """Results of two peers; a time of None is absent."""
    cell = Cell(ranks, op, "float32", "numpy", "sync", size)
    return [
        Result(cell, peer, 1, [time], [time])
        if time
        else Result(cell, peer, absent="gloo has none")
        for peer, time in (("allhands", ours), ("gloo", gloo))
    ]


ROWS = [
    row("all_reduce", 8, 1e-6, 8e-6),
    row("all_reduce", MIB, 0.5, 1.0),
    row("all_reduce", 2 * MIB, 0.5, None),
]


def shown(table):
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_a_line_per_size():
    lines = shown(results_table(ROWS, LIMITS["copy"]))
    small, large, alone = (line for line in lines if "B" in "".join(line[1:2]))
    assert small == ["8", "B", "1", "1", "0.008", "0.008", "8", "8", "8.00"]
    # 2 MiB/s on the bus of 2 ranks, a fifth of 10 MiB/s
    assert large[2:4] == ["500,000"] * 2
    assert large[6:] == ["0.20", "1,000,000", "1,000,000", "2.00"]
    assert alone[-2:] == ["-", "-"]


def test_the_summary_has_the_mean_and_the_worst():
    lines = shown(summary_table(ROWS))
    line = next(line for line in lines if line[:1] == ["all_reduce,"])
    assert line[-4:] == ["4.00", "2.00", "1", "MiB"]


def test_without_peers_there_is_no_summary():
    assert summary_table([results[:1] for results in ROWS]) is None


def test_the_picture_has_two_panels_per_number_of_ranks(tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    rows = [*ROWS, row("barrier", 0, 1e-6, 2e-6), row("all_reduce", 8, 1e-6, 2e-6, 4)]
    heights, widths = [], []
    for ranks in ([2], [2, 4]):
        path = tmp_path / f"{len(ranks)}.png"
        members = [other for other in rows if other[0].cell.ranks in ranks]
        plot(path, members, LIMITS, "a machine")
        height, width, _ = imread(path).shape
        heights.append(height)
        widths.append(width)
    assert widths[1] == 2 * widths[0]
    assert heights[1] == heights[0]


def test_what_cannot_be_drawn_is_said_before(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    check_plot(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a.txt': want a name that ends in .png"):
        check_plot(tmp_path / "a.txt")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match="matplotlib: pip install"):
        check_plot(tmp_path / "a.png")
