"""breakpoint: who stops and who waits. The debugger itself is tested with processes."""

import threading
from datetime import timedelta

import pytest

import allhands as dist
from allhands.debug import pause
from harness.ranks import LIMIT, outcomes, run_ranks


class FakeDebugger:
    """Stands for pdb, and counts how often it was entered."""

    def __init__(self):
        self.entered = 0

    def __call__(self, greeting):
        return self

    def set_trace(self):
        self.entered += 1


@pytest.fixture
def debugger(monkeypatch):
    fake = FakeDebugger()
    monkeypatch.setattr(pause, "_debugger", fake)
    return fake


def test_one_rank_stops(debugger):
    run_ranks(3, lambda rank: dist.breakpoint(rank=2))
    assert debugger.entered == 1


def test_the_first_calls_of_a_line_can_be_skipped(debugger):
    def body(rank):
        for _ in range(5):
            dist.breakpoint(skip=3)

    run_ranks(2, body)
    assert debugger.entered == 2


def test_the_others_wait_no_longer_than_they_are_told(debugger):
    is_over = threading.Event()

    def body(rank):
        if rank == 0:
            try:
                dist.breakpoint(rank=1, timeout_s=0.2)
            finally:
                is_over.set()
        is_over.wait(LIMIT)

    late, _ = outcomes(2, body)
    assert isinstance(late, dist.CollectiveTimeoutError)
    assert "limit 0.20 s" in str(late)


def test_without_a_limit_it_is_the_groups(debugger):
    is_over = threading.Event()

    def body(rank):
        dist.group.WORLD.set_timeout(timedelta(seconds=0.2))
        if rank == 0:
            try:
                dist.breakpoint(timeout_s=None)
            finally:
                is_over.set()
        is_over.wait(LIMIT)

    late, _ = outcomes(2, body)
    assert isinstance(late, dist.CollectiveTimeoutError)
