"""FaultPoint: when it is on the way of operations, and what is left of it."""

import gc

import pytest

import allhands as dist
from allhands.backends.fault_text import parse
from allhands.backends.faults import Faults
from allhands.groups.fault_point import FaultPoint
from allhands.groups.world import current
from harness.ranks import run_ranks


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


def test_a_rank_that_no_fault_is_meant_for_takes_its_usual_path():
    def body(rank):
        plain = dist.group.WORLD.communicator
        with dist.debug.faults("rank=1,op=send,do=raise"):
            groups = [dist.group.WORLD, dist.new_group([0, 1])]
            is_plain = [type(each.communicator) is type(plain) for each in groups]
        assert dist.group.WORLD.communicator is plain
        return is_plain

    assert run_ranks(2, body) == [[True, True], [False, False]]


def test_the_rank_of_guests_is_that_which_faults_mean():
    def body(_):
        with dist.debug.faults("rank=1,op=barrier,do=raise"):
            dist.barrier()
            current().begin_guests(1)
            with pytest.raises(dist.InjectedError, match="rank 1, barrier, call 1"):
                dist.barrier()
            current().begin_guests(0)
            dist.barrier()

    run_ranks(1, body)
