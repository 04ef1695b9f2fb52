"""FaultPoint: what is left of it where a world is dropped."""

import gc

import allhands as dist
from allhands.backends.fault_text import parse
from allhands.backends.faults import Faults
from allhands.groups.fault_point import FaultPoint


def test_a_dropped_rank_leaves_no_hook_on_stores():
    as_written = dist.HashStore.set
    point = FaultPoint(lambda: True)
    point.ask_for(Faults(parse("op=store.set,do=raise", "a test")), [])
    assert dist.HashStore.set is not as_written
    del point
    gc.collect()
    assert dist.HashStore.set is as_written


def test_faults_of_stores_come_again_after_they_were_taken_back():
    as_written = dist.HashStore.set
    point = FaultPoint(lambda: True)
    faults = Faults(parse("op=store.set,do=raise", "a test"))
    for _ in range(2):
        point.ask_for(faults, [])
        assert dist.HashStore.set is not as_written
        point.ask_no_more_for(faults, [])
        assert dist.HashStore.set is as_written
