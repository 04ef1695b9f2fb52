"""`allhands bench --torch` as its users meet it."""

import json
import subprocess
import sys

import pytest

from harness.launcher import environment
from harness.ranks import LIMIT

pytest.importorskip("torch")


def bench(*options):
    return subprocess.run(
        [sys.executable, "-m", "allhands", "bench", "--torch", *options],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_steps_of_training_on_both_engines(tmp_path):
    path = tmp_path / "figures.json"
    done = bench("--ranks", "2", "--rounds", "1", "--json", str(path))
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    models = ["perceptron", "convolutions", "transformer"]
    steps = [f"{wrapper}, {model}" for model in models for wrapper in ("DDP", "FSDP2")]
    rows = record["training"]["2"]
    names = [row["name"] for row in rows]
    assert names == ["all_reduce, 8 B", "all_reduce, 1 MiB", *steps]
    for row in rows:
        columns = set(row) - {"name"}
        assert columns - {"alone", "silent"} == {"gloo", "allhands"}
        assert all(0 < seconds < 60 for name in columns for seconds in row[name])
        assert row["name"] in done.stdout
    assert f"torch {record['machine']['versions']['torch']}" in done.stdout


def test_options_of_other_measurements_are_refused():
    done = bench("--ranks", "2", "--sizes", "8", "--plot", "x.png")
    assert done.returncode == 2
    assert "--torch does not go with --sizes; it takes --ranks" in done.stderr
