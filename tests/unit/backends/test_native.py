"""The native engine's communicator as an object."""

import threading
import time
import weakref
from datetime import timedelta

import numpy as np

from allhands import _C, ReduceOp
from harness.ranks import LIMIT, Processes


def pair():
    """The two ends of a group, both in this process."""
    return [
        _C.Communicator(
            rank,
            2,
            name="pair",
            token=bytes(32),
            peers=[_C.process_identity()] * 2,
            tuning={},
            figures="",
            port=None,
            timeout=timedelta(seconds=LIMIT),
            patience=0.0,
            record_length=0,
        )
        for rank in range(2)
    ]


def test_arrays_of_what_is_queued_outlive_a_communicator_that_its_callback_drops():
    held, theirs = pair()
    held = [held]
    dropped = threading.Event()
    seen = []

    def drop():
        held.clear()
        seen.append(array() is not None)
        dropped.set()

    held[0].barrier(None, True).add_done_callback(drop)
    queued = np.ones(1000)
    array = weakref.ref(queued)
    held[0].all_reduce(queued, ReduceOp.SUM, None, True)
    del queued
    theirs.barrier(None, False)
    assert dropped.wait(LIMIT)
    assert seen == [True]
    end = time.monotonic() + LIMIT
    while array() is not None:  # until another thread has closed the group
        assert time.monotonic() < end
        time.sleep(0.001)
    theirs.close(0)


def test_arrays_of_what_has_ended_are_freed_however_many_there_are():
    ours, theirs = pair()
    arrays = [np.ones(3) for _ in range(100)]
    works = [ours.all_reduce(array, ReduceOp.SUM, None, True) for array in arrays]
    references = [weakref.ref(array) for array in arrays]
    for array in arrays:
        theirs.all_reduce(array.copy(), ReduceOp.SUM, None, True)
    del arrays, array
    works[50].wait()
    for work in works:
        work.wait()
    del works, work
    assert not any(reference() is not None for reference in references)
    ours.close(0)
    theirs.close(0)


def test_a_communicator_that_is_dropped_forgets_messages_that_nobody_received():
    """It cannot raise; it ended the process."""
    source = """
        from allhands import _C

        ours, theirs = (
            _C.Communicator(
                rank, 2, name="pair", token=bytes(32), tuning={}, figures="",
                port=None, peers=[_C.process_identity()] * 2, timeout=timedelta(100),
                patience=0.0, record_length=0)
            for rank in range(2)
        )
        other = threading.Thread(target=theirs.barrier, args=(None, False))
        other.start()
        ours.barrier(None, False)
        other.join()
        work = ours.isend(np.ones(1 << 20), 1, 0, None)
        del work, ours
        give("goes on")
    """
    with Processes(1, source) as job:
        assert job.join() == ["goes on"]
