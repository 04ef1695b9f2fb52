"""The tables and the picture of known figures."""

import io
import pathlib
import sys

import pytest
from rich.console import Console

from allhands.bench.cells import Cell
from allhands.bench.page import check_plot
from allhands.bench.plot import fingerprint, plot
from allhands.bench.results import Result
from allhands.bench.table import results_table, summary_table

MIB = 1 << 20
LIMITS = {"copy": {MIB: 10.0 * MIB}, "wake_up": 3e-5, "hand_over": 2e-7}


def row(op, size, ours, gloo, ranks=2):
    """Results of two peers; a time of None is absent."""
    cell = Cell(ranks, op, "float32", "numpy", "sync", size)
    return [
        Result(cell, peer, 1, [time], time, 1)
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
    return [line.split() for line in printed(table, 120)]


def printed(table, width):
    console = Console(file=io.StringIO(), width=width, height=50)
    console.print(table)
    return console.file.getvalue().splitlines()


def test_a_line_per_size():
    lines = shown(results_table(ROWS, LIMITS["copy"], 120))
    small, large, alone = (line for line in lines if "B" in "".join(line[1:2]))
    assert small == ["8", "B", "1", "1", "0.008", "0.008", "8", "8", "8.00"]
    # 2 MiB/s on the bus of 2 ranks, a fifth of 10 MiB/s
    assert large[2:4] == ["500,000"] * 2
    assert large[6:] == ["0.20", "1,000,000", "1,000,000", "2.00"]
    assert alone[-2:] == ["-", "-"]


LARGE = [
    [
        Result(cell, peer, 1, [time], 1.5 * time, 1)
        for peer, time in (("allhands", 12.345678), ("gloo", 132.1), ("mpi", 113.2))
    ]
    for cell in (Cell(4, "all_reduce", "float32", "numpy", "sync", MIB),)
]


@pytest.mark.parametrize(
    ("width", "columns"),
    [(200, 12), (115, 10), (100, 9), (90, 8), (80, 7), (70, 6)],
)
def test_a_narrow_console_gets_fewer_columns_and_every_digit(width, columns):
    table = results_table(LARGE, LIMITS["copy"], width)
    assert len(table.columns) == columns
    lines = printed(table, width)
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert "…" not in text
    for figure in ("12,345,678", "132,100,000", "113,200,000", "10.70", "9.17"):
        assert figure in text


def test_a_narrow_summary_has_every_digit():
    lines = printed(summary_table(LARGE, 80), 80)
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in "".join(lines)
    assert "1 MiB" in "".join(lines)


@pytest.mark.parametrize(("width", "figures"), [(120, 9), (80, 6), (60, 3)])
def test_a_narrow_summary_of_many_peers_has_fewer_figures(width, figures):
    cell = Cell(2, "all_gather_single", "float32", "numpy", "sync", MIB, 2)
    peers = ("allhands", "gloo", "mpi:/opt/openmpi", "sockets")
    rows = [[Result(cell, peer, 1, [12.3], 15.1, 1) for peer in peers]]
    table = summary_table(rows, width)
    assert len(table.columns) == 1 + figures
    lines = printed(table, width)
    assert all(len(line) <= width for line in lines)
    assert "…" not in "".join(lines)
    assert "/opt" not in "".join(lines)
    for word in ("all_gather_single,", "ranks", "hosts,", "openmpi", "1.00"):
        assert any(word in line for line in lines)


def test_the_summary_has_the_mean_and_the_worst():
    lines = shown(summary_table(ROWS, 120))
    line = next(line for line in lines if line[:1] == ["all_reduce,"])
    assert line[-4:] == ["4.00", "2.00", "1", "MiB"]


def test_without_peers_there_is_no_summary():
    assert summary_table([results[:1] for results in ROWS], 120) is None


def test_the_picture_has_a_line_of_panels_per_number_of_ranks(tmp_path):
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
    assert widths[1] == widths[0] <= 1100  # a page
    assert heights[1] > 1.5 * heights[0]


def test_the_picture_is_legible_on_a_page(monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.text import Text

    figures = []
    monkeypatch.setattr("allhands.bench.plot.write", lambda *args: figures.append(args))
    slow = row("all_reduce", 8, 1.0, 1000.0)  # its bandwidth is far below the best
    plot(pathlib.Path("a.png"), [slow, *ROWS], LIMITS, "a machine")
    (figure, _, _, keywords) = figures[0]
    assert keywords == fingerprint([slow, *ROWS], LIMITS)
    assert keywords != fingerprint(ROWS, LIMITS)
    assert figure.get_figwidth() <= 7  # inches
    figure.canvas.draw()
    letters = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    assert len(letters) > 10
    assert min(letters) >= 7  # points
    low, high = figure.axes[1].get_ylim()
    assert figure.axes[1].get_title(loc="left") == "bus bandwidth, GB/s"
    assert high / low <= 100 * (1 + 1e-9)  # two decades
    best = max(result.busbw for results in ROWS for result in results[:1]) / 1e9
    assert low < best < high


def test_a_picture_of_another_kind_needs_no_keywords(tmp_path):
    pytest.importorskip("matplotlib")
    for kind in ("svg", "pdf", "eps"):
        plot(tmp_path / f"a.{kind}", ROWS, LIMITS, "a machine")
        assert (tmp_path / f"a.{kind}").stat().st_size > 1000


def test_what_cannot_be_drawn_is_said_before(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    check_plot(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a.txt': want a name that ends in .png"):
        check_plot(tmp_path / "a.txt")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match="matplotlib: pip install"):
        check_plot(tmp_path / "a.png")
