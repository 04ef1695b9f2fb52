"""Seconds that do not count while a thread waits for a CPU."""

import os
import time
from types import SimpleNamespace

import pytest

from allhands.debug import allowance
from allhands.debug.allowance import Allowance
from allhands.elastic.process_state import seconds_without_cpu


class Clocks:
    """What the clock says, and how long each thread has waited for a CPU."""

    now = 100.0

    def __init__(self):
        self.waited = {None: 5.0, 77: 0.0}

    def read(self):
        return self.now


@pytest.fixture
def clocks(monkeypatch):
    clocks = Clocks()
    monkeypatch.setattr(allowance, "time", SimpleNamespace(monotonic=clocks.read))
    monkeypatch.setattr(
        allowance, "seconds_without_cpu", lambda pid=None: clocks.waited[pid]
    )
    return clocks


def test_with_a_free_cpu_all_seconds_count(clocks):
    given = Allowance(0.5)
    assert given.left() == pytest.approx(0.5)
    clocks.now += 0.4
    assert given.left() == pytest.approx(0.1)


def test_waits_for_a_cpu_give_more_up_to_a_limit(clocks):
    given = Allowance(0.5)
    for waited, left in ((0.1, 0.4), (0.1, 0.3), (0.2, 0.2)):
        clocks.now += 0.5
        clocks.waited[None] += waited
        assert given.left() == pytest.approx(left)  # at most 1.2 s more


def test_who_waits_for_a_process_counts_as_that_does(clocks):
    given = Allowance(0.5)
    with given.spent_by(77):
        clocks.now += 0.4
        clocks.waited[77] += 0.05
        assert given.left() == pytest.approx(0.3)
    clocks.now += 0.3
    clocks.waited[None] += 0.05
    assert given.left() == pytest.approx(0.2)


def test_the_kernel_says_how_long_a_thread_had_no_cpu():
    for pid in (None, os.getpid()):
        assert 0 <= seconds_without_cpu(pid) < time.monotonic()
    assert seconds_without_cpu(-1) == 0
