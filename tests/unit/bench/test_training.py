import io
import math

from rich.console import Console

from allhands.bench.training import TrainingRow, training_table


def test_a_step_is_told_by_medians_of_rounds():
    seconds = {
        "alone": [1.0, 2.0, 1.0],
        "silent": [1.5, 2.5, 1.5],
        "gloo": [3.0, 4.0, 9.0],
        "allhands": [2.0, 2.5, 5.0],
    }
    row = TrainingRow("DDP", seconds)
    assert [row.time(column) for column in seconds] == [1.0, 1.5, 4.0, 2.5]
    assert math.isclose(row.speedup, 1.6)
    assert row.added == 0.5


def test_what_is_lost_in_noise_has_no_share():
    seconds = {"alone": [1.0, 2.0], "gloo": [3.0, 1.9], "allhands": [2.0, 2.0]}
    assert TrainingRow("DDP", seconds).added is None


def test_an_operation_adds_to_nothing():
    row = TrainingRow("all_reduce", {"gloo": [2e-3], "allhands": [1e-3]})
    assert row.time("alone") is None
    assert row.added is None
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(training_table([row]))
    [line] = [line for line in console.export_text().splitlines() if "all" in line[:12]]
    assert line.split() == ["all_reduce", "2", "1", "2"]
