"""The table of `allhands top`: what fits, in which order."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from allhands.debug.top.figures import Figures
from allhands.debug.top.row import Current, RankRow
from allhands.debug.top.table import sorted_rows, table_of

HEAD = "rank state operation group for op/s B/s comm late CPU"
FIGURES = Figures(12, 96, 123456.0, 9.87e9, 1.0, 0.5, 0.25)


def row(rank, state="transfers", *, awaited=0.0, op="all_reduce", seconds=0.5, to=()):
    figures = Figures(12, 96, 10.0 * rank, 1e9, 0.5, 0.0, awaited)
    current = Current(op, "0", 1234567, 3, state != "computes", seconds)
    return RankRow(rank, 1, "h", state, to, len(to), current, figures, rank / 10)


def printed(rows, key="l", width=80):
    file = io.StringIO()
    Console(file=file, width=width).print(table_of(rows, key, width))
    return file.getvalue().splitlines()


def test_a_row_is_whole_in_80_columns():
    busy = RankRow(
        1023,
        1,
        "h",
        "waits",
        (1000, 1001),
        2,
        Current("reduce_scatter", "default_pg", 1234567, None, True, 99.9),
        FIGURES,
        10.0,
    )
    lines = printed([busy])
    assert max(map(len, lines)) <= 80
    assert " ".join(lines[0].split()) == HEAD
    cells = lines[1].split()
    assert cells[:3] == ["1023", "waits", "for"]
    assert "reduce_scatter" in lines[1]
    assert cells[-6:] == ["99.9s", "123k", "9.87G", "100%", "25%", "1000%"]


@pytest.mark.parametrize("width", [70, 75, 80, 120])
def test_lines_are_as_wide_as_the_terminal(width):
    """Also with names that are too long, or have wide characters."""
    for group in ("\u7fa4" * 40, "group" * 40, "g"):
        current = Current("reduce_scatter_single", group, 1234567, None, True, 1.0)
        waiting = RankRow(0, 1, "h", "waits", (1000,), 9, current, FIGURES, 0.5)
        lines = printed([waiting, row(1)], width=width)
        assert len(lines) == 3
        assert {cell_len(line) for line in lines} == {width}
        assert lines[0].split() == HEAD.split()
        told = ["1.0s", "123k", "9.87G", "100%", "25%", "50%"]
        assert lines[1].split()[-6:] == told


def test_names_are_no_markup():
    group, op = "[/b]x", "[red]op:on:"
    current = Current(op, group, 7, None, True, 1.0)
    odd = RankRow(0, 1, "h", "transfers", (), 0, current, FIGURES, 0.5)
    line = printed([odd], width=100)[1]
    assert group in line
    assert f"{op} #7" in line


def test_messages_say_with_whom():
    assert "recv from 3" in printed([row(0, op="recv")])[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3e-6, "3us"), (0.0123, "12ms"), (1.5, "1.5s"), (4e3, "4000s")],
)
def test_times_are_short(seconds, text):
    assert text in printed([row(0, seconds=seconds)])[1].split()


def test_the_worst_come_first():
    rows = [row(0, awaited=0.1), row(1, awaited=0.9), row(2, "dead"), row(3)]
    assert [each.rank for each in sorted_rows(rows, "l")] == [2, 1, 0, 3]
    assert [each.rank for each in sorted_rows(rows, "r")] == [0, 1, 2, 3]
    assert [each.rank for each in sorted_rows(rows, "o")] == [2, 3, 1, 0]
