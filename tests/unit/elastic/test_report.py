"""What the launcher's last lines say."""

from dataclasses import replace

import pytest

from allhands.elastic.report import headline, report
from harness.failures import PLAIN, traceback

CALL = "all_reduce(float64, count 2, SUM) #3 on group 'dp'"
GONE = "rank 2 (pid 4711) died"
FOLLOWED = traceback(
    f"allhands.errors.RankFailedError: {CALL}: rank 0 (this process): {GONE}; "
    "rank 2 was last in barrier #2"
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


def test_an_error_of_ours_has_a_short_headline_and_says_each_fact_once():
    followed = replace(PLAIN, rank=0, stderr=FOLLOWED)
    other = replace(PLAIN, rank=1, stderr=FOLLOWED.replace("(this process)", "reports"))
    lines = report([followed, other, replace(other, rank=3)], 0)
    assert lines[:3] == [
        f"allhands run: rank 0 failed: RankFailedError: {GONE}",
        f"    in {CALL}; rank 2 was last in barrier #2",
        "  at /u/train.py:7, in step: go()",
    ]
    assert lines[-1] == "  2 more failed after it: rank 1, 3 (RankFailedError)"
    text = "\n".join(lines)
    assert text.count(GONE) == text.count(CALL) == 1


@pytest.mark.parametrize(
    ("error", "head", "rest"),
    [
        (
            "CollectiveTimeoutError: recv(int8, count 1, from rank 1, tag 0) on group "
            "'0': rank 0 (this process) waited 30 s for rank 1",
            "CollectiveTimeoutError: waited 30 s for rank 1",
            "in recv(int8, count 1, from rank 1, tag 0) on group '0'",
        ),
        (
            "RankFailedError: barrier #3 on group '0': the group is broken since: "
            "rank 1 died; it was late",
            "RankFailedError: rank 1 died",
            "in barrier #3 on group '0': the group is broken since; it was late",
        ),
        (
            "CollectiveTimeoutError: barrier #3 on group '0': rank 2 reports: waited "
            "1.00 s (limit 1.00 s); missing [1]; rank 1 was last in barrier #1",
            "CollectiveTimeoutError: waited 1.00 s (limit 1.00 s); missing [1]",
            "in barrier #3 on group '0'; rank 1 was last in barrier #1",
        ),
        (
            "CollectiveMismatchError: recv(int64, count 4, from rank 0, tag 0) on "
            "group '0': rank 0 sent int64, count 3",
            "CollectiveMismatchError: rank 0 sent int64, count 3",
            "in recv(int64, count 4, from rank 0, tag 0) on group '0'",
        ),
        (
            "CollectiveMismatchError: the ranks of group '0' called different things "
            "as operation #2: rank 0 (this process): barrier; rank 1: reduce",
            "CollectiveMismatchError: the ranks of group '0' called different things "
            "as operation #2",
            "rank 0: barrier; rank 1: reduce",
        ),
        ("DistNetworkError: no route", "DistNetworkError: no route", None),
        ("DistError", "DistError", None),
    ],
)
def test_what_errors_of_ours_say_is_parted(error, head, rest):
    failure = replace(PLAIN, stderr=traceback(f"allhands.errors.{error}"))
    assert headline(failure) == head
    lines = report([failure], 0)
    assert (lines[1] == f"    {rest}") == (rest is not None)


def test_ranks_that_ended_alike_are_named_together():
    first, *others = (
        replace(PLAIN, rank=rank, exit_code=code, stderr="")
        for rank, code in enumerate([3, 3, -11, 3])
    )
    line = (
        "  3 more failed after it: rank 1, 3 (exit code 3); rank 2 (killed by SIGSEGV)"
    )
    assert line in report([first, *others], 0)
