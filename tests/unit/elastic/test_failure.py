"""Which rank is named."""

import signal
from dataclasses import replace

from allhands.elastic.exception_text import parse_exception
from allhands.elastic.failure import first_failure, shell_code, signal_name
from allhands.elastic.report import headline, report
from harness.failures import PLAIN, traceback

FOLLOWED = traceback("allhands.errors.RankFailedError: rank 2 is gone")


def test_a_rank_that_followed_is_not_named():
    followed = replace(PLAIN, rank=0, stderr=FOLLOWED)
    assert first_failure([followed, PLAIN]) is PLAIN
    assert first_failure([followed]) is followed


def test_a_rank_stopped_while_it_failed_is_named():
    followed = replace(PLAIN, rank=0, stderr=FOLLOWED)
    idle = replace(PLAIN, rank=1, exit_code=-15, was_stopped=True, stderr="")
    raising = replace(PLAIN, exit_code=-15, was_stopped=True)
    assert first_failure([followed, idle, raising]) is raising
    assert headline(raising) == "ValueError: bad"
    assert first_failure([followed, idle]) is followed


def test_codes_and_names():
    assert [shell_code(code) for code in (0, 3, -9, -15)] == [0, 3, 137, 143]
    assert signal_name(signal.SIGKILL) == "SIGKILL"
    assert signal_name(99) == "signal 99"


def test_the_stderr_of_many_ranks_is_read_once(monkeypatch):
    texts = []

    def parse(text):
        texts.append(text)
        return parse_exception(text)

    monkeypatch.setattr("allhands.elastic.failure.parse_exception", parse)
    failures = [
        replace(PLAIN, rank=rank, stderr=traceback(f"ValueError: bad {rank}"))
        for rank in range(50)
    ]
    assert first_failure(failures).rank == 0
    lines = report(failures, 0)
    assert lines[0] == "allhands run: rank 0 failed: ValueError: bad 0"
    assert len(texts) == len(set(texts)) == 50
