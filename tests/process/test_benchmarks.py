"""The benchmarks run, check their results, and say what they measured."""

import json
import subprocess
import sys

import pytest

from harness.documents import ROOT
from harness.launcher import environment

ALL_REDUCE = ROOT / "benchmarks" / "all_reduce.py"
TINY = ["--ranks", "2", "--sizes", "8", "65536", "--rounds", "2", "--seconds", "0.001"]


def run(*options, **variables):
    return subprocess.run(
        [sys.executable, ALL_REDUCE, *options],
        env=environment(COLUMNS="100", **variables),
        capture_output=True,
        text=True,
        timeout=50,
    )


def measured(tmp_path, **variables):
    path = tmp_path / "figures.json"
    done = run(*TINY, "--json", str(path), **variables)
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["machine"] in done.stdout
    rows = [(row["ranks"], row["bytes"]) for row in record["results"]]
    assert rows == [(2, 8), (2, 65536)]
    for row in record["results"]:
        for seconds in row["seconds"].values():
            assert len(seconds) == 2
            assert all(0 < value < 10 for value in seconds)
    assert "64 KiB" in done.stdout
    return record, done.stdout


def test_all_reduce_against_gloo(tmp_path):
    pytest.importorskip("torch")
    record, text = measured(tmp_path)
    contenders = ["allhands, NumPy", "allhands, torch", "Gloo"]
    assert list(record["results"][0]["seconds"]) == contenders
    assert " x " in text


def test_all_reduce_without_gloo(tmp_path):
    hidden = "import sys; sys.modules['torch'] = None"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    record, text = measured(tmp_path, PYTHONPATH=str(tmp_path))
    assert list(record["results"][0]["seconds"]) == ["allhands, NumPy"]
    assert "Gloo was not measured: torch is not installed" in text
