"""Rates and shares, by counters and by looks."""

import pytest

from allhands.debug.top.figures import Tally
from allhands.debug.top.looks import Look
from allhands.debug.top.memory import GroupView, Operation

INSIDE = Operation(1, False, True, "barrier", False, -1, 1, 0)


def group(collectives=0, messages=0, num_bytes=0, *, key=1, inside=False):
    operations = (INSIDE,) if inside else ()
    return GroupView(key, 1, "g", 0, 2, collectives, messages, num_bytes, 0, operations)


def test_rates_are_those_since_the_figures_before():
    tally = Tally()
    [first] = tally.figures({0: [group(10, 5, 100)]}, 1.0).values()
    assert (first.num_operations, first.num_bytes) == (15, 100)
    assert (first.operations_per_second, first.bytes_per_second) == (0, 0)
    [second] = tally.figures({0: [group(30, 5, 500)]}, 2.0).values()
    assert (second.num_operations, second.num_bytes) == (35, 500)
    assert (second.operations_per_second, second.bytes_per_second) == (10, 200)


def test_a_destroyed_group_keeps_its_counts():
    tally = Tally()
    tally.figures({0: [group(10, num_bytes=80), group(1, key=2)]}, 1.0)
    [told] = tally.figures({0: [group(4, key=2)]}, 1.0).values()
    assert (told.num_operations, told.num_bytes) == (14, 80)
    assert told.operations_per_second == 3


def test_a_group_that_only_a_look_saw_counts_too():
    tally, lasting = Tally(), group(10, num_bytes=80)
    tally.figures({0: [lasting]}, 1.0)
    for key in range(2, 1002):
        short = group(3, num_bytes=8, key=key)
        tally.add(Look({0: [lasting, short]}, {}, frozenset()))
    tally.add(Look({0: [short]}, {}, frozenset()))  # one was being changed just then
    [told] = tally.figures({0: [lasting]}, 1.0).values()
    assert (told.num_operations, told.num_bytes) == (3010, 8080)
    assert told.operations_per_second == 3000
    assert len(tally._counts[0]._by_group) < 100


def test_shares_are_those_of_looks():
    tally = Tally()
    inside, outside = [group(inside=True)], [group()]
    for i in range(4):
        views = {0: inside, 1: inside if i == 0 else outside}
        waits = {0: frozenset({1})} if i else {}
        tally.add(Look(views, waits, frozenset({1} if i else ())))
    told = tally.figures({0: inside, 1: outside}, 1.0)
    assert (told[0].in_communication, told[0].waiting, told[0].awaited) == (1, 0.75, 0)
    assert told[1].in_communication == pytest.approx(0.25)
    assert (told[1].waiting, told[1].awaited) == (0, 0.75)
    # Where there were few looks since, those before count, too.
    for _ in range(4):
        tally.add(Look({0: outside, 1: outside}, {}, frozenset()))
    again = tally.figures({0: outside, 1: outside}, 1.0)
    assert (again[0].in_communication, again[1].awaited) == (0.5, 3 / 8)
    for _ in range(40):
        tally.add(Look({0: outside, 1: outside}, {}, frozenset()))
    tally.figures({0: outside, 1: outside}, 1.0)
    last = tally.figures({0: outside, 1: outside}, 1.0)
    assert (last[0].in_communication, tally.num_looks) == (0, 40)


def test_shares_of_a_long_interval_are_those_of_all_its_looks():
    tally = Tally()
    for i in range(100):
        tally.add(Look({0: [group(inside=i < 50)]}, {}, frozenset()))
    assert tally.num_looks == 100
    [told] = tally.figures({0: [group()]}, 20.0).values()
    assert told.in_communication == 0.5
    assert len(tally._last) == 40  # what is kept does not grow with the interval
