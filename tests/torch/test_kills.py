"""Ranks killed at random moments, by the program that also does it by the hundred."""

import pathlib
import subprocess
import sys

import pytest

from harness.ranks import LIMIT

pytest.importorskip("torch")

_PROGRAM = pathlib.Path(__file__).parents[2] / "benchmarks" / "torch_kills.py"


def test_survivors_are_told_and_end_by_themselves():
    options = ["--count=8", "--limit=10"]  # of seconds: the machine may be busy
    done = subprocess.run(
        [sys.executable, "-W", "ignore", _PROGRAM, *options],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 kills, 3 ranks" in done.stdout
