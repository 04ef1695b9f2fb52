"""Which rank is named, and how."""

import signal
from dataclasses import replace

import pytest

from allhands.elastic.failure import (
    Failure,
    first_failure,
    report,
    shell_code,
    signal_name,
)


def traceback(error: str) -> str:
    return (
        "Traceback (most recent call last):\n"
        '  File "/u/train.py", line 7, in step\n'
        "    go()\n"
        f"{error}\n"
    )


FOLLOWED = traceback("allhands.errors.RankFailedError: all_reduce #3: rank 2 is gone")
PLAIN = Failure(
    rank=2,
    local_rank=2,
    host="node1",
    pid=4711,
    exit_code=1,
    elapsed=3.21,
    stderr=traceback("ValueError: bad"),
)


def test_report_of_an_exception():
    assert report([PLAIN], num_stopped=3) == [
        "allhands run: rank 2 failed: ValueError: bad",
        "  at /u/train.py:7, in step: go()",
        "  on host node1, pid 4711, local rank 2; it ran for 3.2 s",
        "  3 others stopped because of rank 2",
    ]


def test_report_of_sigkill_tells_memory():
    killed = replace(PLAIN, exit_code=-9, stderr="")
    lines = report([killed], 0)
    assert lines[0] == "allhands run: rank 2 failed: killed by SIGKILL"
    assert "the kernel counted no out-of-memory (OOM) kill" in lines[1]
    lines = report([replace(killed, oom_kills=1)], 0)
    assert "out of memory (OOM): the kernel killed 1 process here" in lines[1]


def test_report_of_an_exit_code_with_a_traceback_before_it():
    lines = report([replace(PLAIN, exit_code=3)], 0)
    assert lines[0] == "allhands run: rank 2 failed: exit code 3"
    assert "  last exception on its stderr: ValueError: bad" in lines


@pytest.mark.parametrize("num_lines", [1, 5, 6, 7, 500])
def test_report_is_short_whatever_the_message(num_lines):
    text = "\n".join(f"line {i} " + "x" * 1000 for i in range(num_lines))
    first = replace(PLAIN, stderr=traceback(f"E: {text}"), stderr_path="/logs/err")
    others = [replace(PLAIN, rank=rank) for rank in range(3, 20)]
    lines = report([first, *others], num_stopped=7)
    assert len(lines) <= 15
    assert all(len(line) <= 400 for line in lines)
    assert ("more lines above" in "".join(lines)) == (num_lines > 6)


def test_who_was_done_is_told_where_it_is_the_likely_cause():
    line = "  ended before it, with exit code 0: rank 0, 1, 2, 3, ..."
    followed = replace(PLAIN, rank=7, stderr=FOLLOWED)
    assert line in report([followed], 0, done=[0, 1, 2, 3, 4])
    assert line not in report([PLAIN], 0, done=[0, 1, 2, 3, 4])
    assert "ended before it" not in "".join(report([followed], 0))


def test_the_messages_of_the_others_are_cut_visibly():
    other = replace(PLAIN, rank=1, stderr=traceback("E: " + "x" * 90))
    assert f"  1 more failed after it: rank 1 (E: {'x' * 80}...)" in report(
        [PLAIN, other], 0
    )


def test_a_rank_that_followed_is_not_named():
    followed = replace(PLAIN, rank=0, stderr=FOLLOWED)
    assert first_failure([followed, PLAIN]) is PLAIN
    assert first_failure([followed]) is followed


def test_a_rank_stopped_while_it_failed_is_named():
    followed = replace(PLAIN, rank=0, stderr=FOLLOWED)
    idle = replace(PLAIN, rank=1, exit_code=-15, was_stopped=True, stderr="")
    raising = replace(PLAIN, exit_code=-15, was_stopped=True)
    assert first_failure([followed, idle, raising]) is raising
    assert raising.cause() == "ValueError: bad"
    assert first_failure([followed, idle]) is followed


def test_codes_and_names():
    assert [shell_code(code) for code in (0, 3, -9, -15)] == [0, 3, 137, 143]
    assert signal_name(signal.SIGKILL) == "SIGKILL"
    assert signal_name(99) == "signal 99"
