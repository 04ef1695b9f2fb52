"""How waits in stores poll, on a clock of the test."""

from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest

from allhands.store import limits


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=100.0, looks=[])

    def sleep(seconds):
        assert seconds >= 0
        clock.now += seconds

    def look(waited, limit):
        clock.looks.append(waited)

    time = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr(limits, "time", time)
    monkeypatch.setattr(limits, "look", look)
    return clock


@pytest.mark.parametrize("scale", [1.0, 16.0, 128.0])
def test_a_watch_is_called_as_often_however_long_the_pauses_are(clock, scale):
    tries = [clock.now - 100 for _ in limits.poll(timedelta(seconds=5), scale=scale)]
    gaps = [after - before for before, after in pairwise(tries)]
    assert tries[0] == 0
    assert tries[-1] == pytest.approx(5)
    assert max(gaps) == pytest.approx(0.01 * scale)
    looks = [0.0, *clock.looks, 5.0]
    waits = [after - before for before, after in pairwise(looks)]
    assert max(waits) < 0.2


def test_without_time_there_is_one_try(clock):
    assert len([*limits.poll(timedelta(0))]) == 1
    assert clock.looks == []


def test_who_takes_long_between_tries_is_not_tried_more_often(clock):
    tries = []
    for _ in limits.poll(timedelta(seconds=1)):
        tries.append(clock.now)
        clock.now += 0.3
    assert len(tries) == 4


def test_who_is_held_up_before_a_pause_does_not_sleep_for_less_than_nothing(clock):
    def now():
        clock.now += 0.0003  # longer than the first pause
        return clock.now

    limits.time.monotonic = now
    tries = [clock.now for _ in limits.poll(timedelta(seconds=1))]
    assert len(tries) > 10
    assert tries[-1] == pytest.approx(101, abs=0.01)
