"""The file of a run: what was written is read, and nothing else."""

import json

import pytest

from allhands.bench.cells import Cell
from allhands.bench.record import read_record, write_record
from allhands.bench.results import Result

LIMITS = {"copy": {1024: 2e9}, "wake_up": 3e-5, "hand_over": None}
MACHINE = {"cpu": "one", "limits": LIMITS}
ROWS = [
    [
        Result(
            Cell(2, op, "float32", "numpy", "sync", 1024),
            "allhands",
            3,
            [1e-6],
            2e-6,
            9,
        ),
        Result(Cell(2, op, "float32", "numpy", "sync", 1024), "mpi", absent="none"),
    ]
    for op in ("all_reduce", "broadcast")
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "figures.json"
    write_record(path, {"rounds": 1}, MACHINE, ROWS)
    return path


def test_what_was_written_is_read(path):
    assert read_record(path) == (MACHINE, ROWS)


@pytest.mark.parametrize(
    ("name", "value"),
    [("format", 2), ("machine", {}), ("results", [{}]), ("results", 3)],
)
def test_another_file_is_named(path, name, value):
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(ValueError, match=r"figures.json' is no record of `allhands"):
        read_record(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{}"])
def test_bytes_that_are_no_record(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is no record"):
        read_record(path)


def test_what_torch_took_is_named(path):
    path.write_text(json.dumps({"machine": {}, "training": {}}))
    with pytest.raises(ValueError, match="what --torch measured, which is not shown"):
        read_record(path)
