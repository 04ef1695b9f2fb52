"""What a rank does that is asked for its record while it writes it."""

import json
import signal
import sys
import threading
from datetime import timedelta

import pytest

import allhands as dist
from allhands.debug import explanation
from allhands.debug.reporter import _Reporter
from harness.ranks import LIMIT, run_ranks


class Memory:
    """It is asked again, once, when the answer has been written."""

    def __init__(self, ask):
        self.ask = ask
        self.records = []

    def write(self, record):
        self.records.append(json.loads(record))
        if len(self.records) == 1:
            self.ask()


def ask(reporter):
    reporter.on_signal(signal.SIGUSR2, sys._getframe())


def test_who_asks_while_an_answer_is_written_gets_one_that_is_newer(monkeypatch):
    monkeypatch.delenv("ALLHANDS_DUMPS", raising=False)
    reporter = _Reporter()
    reporter._memory = memory = Memory(lambda: ask(reporter))
    ask(reporter)
    first, second = memory.records
    assert first["time_ns"] < second["time_ns"]
    ask(reporter)
    assert len(memory.records) == 3


def test_who_asks_while_a_failure_is_written_gets_an_answer(monkeypatch):
    monkeypatch.delenv("ALLHANDS_DUMPS", raising=False)
    monkeypatch.setattr(explanation, "_LEAST_WAIT", 0)

    over = threading.Event()

    def body(rank):
        records = []
        if rank == 1:
            assert over.wait(LIMIT)
        else:
            with pytest.raises(dist.CollectiveTimeoutError) as info:
                dist.barrier(timeout=timedelta(milliseconds=20))
            reporter = _Reporter()
            reporter._memory = memory = Memory(lambda: ask(reporter))
            reporter._explain(info.value)
            records = memory.records
            over.set()
        return [(each["reason"], "why" in (each["error"] or ())) for each in records]

    # It tells that it gives up, answers, and tells why once it knows.
    told = run_ranks(2, body)[0]
    assert told == [("failure", False), ("signal", False), ("failure", True)]
