"""The figures made of times."""

import pytest

from allhands.bench.cells import Cell
from allhands.bench.results import Result, geometric_mean, percentile, ratio

CELL = Cell(4, "all_reduce", "float32", "numpy", "sync", 8000)


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)]
)
def test_percentiles_are_values_that_occurred(percent, value):
    assert percentile(range(100, 0, -1), percent) == value


def test_the_99th_percentile_of_few_is_the_largest():
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0


def test_twice_as_fast_and_half_as_fast_make_one():
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)


def result(peer="allhands", blocks=(3e-6, 1e-6, 2e-6), absent=""):
    return Result(CELL, peer, 100, list(blocks), 9e-6, 2, absent)


def test_bandwidths_are_of_the_median_block():
    assert result().median == 2e-6
    assert result().algbw == pytest.approx(4e9)
    assert result().busbw == pytest.approx(6e9)


def test_ratio_says_how_many_times_as_long_the_other_takes():
    assert ratio(result("gloo", [8e-6]), result()) == pytest.approx(4.0)
    assert ratio(result("gloo", absent="gloo has no such thing"), result()) is None


def test_a_row_has_every_figure_or_the_reason_why_there_is_none():
    row = result().as_json()
    assert row["size"] == row["bytes"] == 8000
    assert (row["op"], row["peer"], row["calls"]) == ("all_reduce", "allhands", 100)
    assert row["blocks"] == [3e-6, 1e-6, 2e-6]
    assert row["num_samples"] == 2
    row = result(absent="no way").as_json()
    assert row["absent"] == "no way"
    assert "median" not in row


@pytest.mark.parametrize("absent", ["", "no way"])
def test_a_row_gives_back_its_result(absent):
    blocks = () if absent else (3e-6, 1e-6)
    kept = Result(CELL, "mpi", 0 if absent else 9, list(blocks), absent=absent)
    assert Result.from_json(kept.as_json()) == kept


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("blocks", [], ValueError),
        ("blocks", [0.0], ValueError),
        ("blocks", ["x"], ValueError),
        ("blocks", None, TypeError),
        ("op", "frob", ValueError),
    ],
)
def test_a_row_that_was_changed_is_refused(field, value, error):
    with pytest.raises(error):
        Result.from_json({**result().as_json(), field: value})
