"""What more ranks cost: the option's numbers, growth, and tables that fit."""

import re

import pytest
from rich.console import Console

from allhands.bench.scale import FIGURES, Scale, growth, parse_ranks
from allhands.bench.scale_table import scale_tables


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("4", [4]),
        ("2,3,7", [2, 3, 7]),
        ("2,4,...,32", [2, 4, 8, 16, 32]),
        ("3, 9, ..., 81", [3, 9, 27, 81]),
        ("2,4,...,8,10", [2, 4, 8, 10]),
    ],
)
def test_numbers_of_ranks(text, numbers):
    assert parse_ranks(text) == numbers


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is no number of ranks from 2 up"),
        ("1,2", "'1' is no number of ranks from 2 up"),
        ("4,2", "2 does not come after 4"),
        ("4,4", "4 does not come after 4"),
        ("2,...,8", "want 2 numbers before `...`, one after it"),
        ("2,4,...", "want 2 numbers before `...`, one after it"),
        ("2,4,...,24", "`...` does not lead to 24"),
        ("2,5,...,50", "`...` does not lead to 50"),
        ("2,4,...,x", "`...` does not lead to x"),
        ("2,4,...,4", "`...` does not lead to 4"),
    ],
)
def test_what_are_no_numbers_of_ranks(text, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_ranks(text)


def scale(ranks, value):
    return Scale(ranks, {name: [value, value / 2, 2 * value] for name in FIGURES})


def test_growth_is_that_of_a_doubling():
    rows = [scale(2, 1.0), scale(4, 5.0), scale(16, 8.0)]
    assert rows[1].median("init") == 5
    assert growth(rows, "init") == pytest.approx(2)
    assert growth(rows[:1], "init") is None
    assert growth([scale(2, 0.0), scale(4, 1.0)], "init") is None


def test_tables_fit_a_terminal_of_80_columns():
    # 99 s, GB or million requests: no column can be wider.
    rows = [scale(2, 1.0), scale(1024, 1.0)]
    for row in rows:
        for name, figure in FIGURES.items():
            row.figures[name][:] = [99_999 * figure.size] * 3
    console = Console(width=80, record=True)
    for _, table in scale_tables(rows):
        console.print(table)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("99,999" in line for line in lines) == 4
    assert not any("…" in line for line in lines)
