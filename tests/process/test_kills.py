"""Ranks killed, stopped and watched, by the programs that repeat or measure it."""

import pathlib
import subprocess
import sys

import pytest

from allhands.debug import silent
from harness.ranks import LIMIT

_BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
_TELLS_LINES = pytest.mark.skipif(
    not silent._py_spy(), reason="without py-spy nobody sees where a stopped rank is"
)


def output_of(program, *options):
    """What a benchmark prints, which must succeed."""
    done = subprocess.run(
        [sys.executable, program, *options],
        cwd=_BENCHMARKS,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--only=all_gather_object"], "all_gather_object    3 ranks 1 MiB   2 of 2"),
        (["--only=send/recv"], "send/recv in a ring  3 ranks 1 MiB   2 of 2 good"),
        (["--only=store.get"], "store.get            3 ranks 1 MiB   2 of 2 good"),
        (["--only=new_group"], "new_group            3 ranks         2 of 2 good"),
        pytest.param(
            ["--only=barrier", "--stop"],
            "barrier              3 ranks         2 of 2",
            marks=_TELLS_LINES,
        ),
    ],
)
def test_survivors_name_the_rank_in_time(options, told):
    # However slow the machine is.
    given = ["--runs=1", "--ranks", "3", "--slack=8", *options]
    assert told in output_of("kills.py", *given)


def test_a_job_that_cannot_begin_is_told_of_at_once(tmp_path):
    program = f"""
import pathlib, random, sys
import kills
kills.BEGIN_S = 1e6
kills.OPERATIONS["broken"] = lambda rank, size, count: [][0]
def play():
    folder = pathlib.Path({str(tmp_path)!r})
    ranks = [kills.Rank("broken", 1, rank, 2, False, folder, 0.0) for rank in (0, 1)]
    print(kills.play(ranks, random.Random(0)))
    return 0
sys.exit(kills.drive(play))
"""
    output = output_of("-c", program)
    assert "they do not begin" in output
    assert "IndexError" in output


def test_worlds_that_lose_a_rank_again_and_again_leave_nothing():
    output = output_of("cycles.py", "--cycles=8", "--slack=30")
    assert output.splitlines()[-1].startswith("0 bad;")


def test_jobs_that_are_well_are_not_blamed():
    output = output_of("healthy.py", "--runs=3", "--may-be-slow")
    assert "0 bad of 3 jobs, in 24 verdicts" in output


def test_what_a_watched_job_loses_is_told():
    given = ("--ranks=2", "--pairs=2", "--seconds=0.2", "--alone=0.5")
    output = output_of("watched.py", *given)
    assert "(median of 2 pairs;" in output
    assert "ms of a CPU per second" in output
