"""What begins at a library while somebody interrupts it."""

import gc
import traceback
import weakref
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.call import Call
from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.polled_rows import PolledRows
from allhands.store import HashStore


class Interrupted(PolledRows):
    """A library that has begun what it is asked for when `error` comes."""

    library_error = dist.DistBackendError

    def __init__(self, store, error):
        options = CommunicatorOptions(
            store, 0, 2, timedelta(seconds=60), "0", [0, 1], 0, lambda: None
        )
        super().__init__(store, options)
        self.error = error
        self.memory = []

    def _begin(self, *_):
        there = np.zeros(4)  # where the library writes
        self.memory.append(weakref.ref(there))
        raise self.error

    _start_send = _start_recv = _free = library_failed = _begin


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (Call("barrier"), "barrier #1 was interrupted by "),
        (Call("recv", np.zeros(4), peer=1), "recv was interrupted by "),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_memory_stays_and_the_others_learn_it(error, call, told, is_async):
    store = HashStore()
    group = Interrupted(store, error)
    call = Call(call.op, call.output, async_op=is_async, peer=call.peer)
    with pytest.raises(type(error)) as caught:
        group.submit(call)
    traceback.clear_frames(caught.tb)
    error.__traceback__ = None
    del caught
    gc.collect()
    assert group.memory[0]() is not None
    assert f"{told}{type(error).__name__}" in store.get("aborted").decode()
    with pytest.raises(dist.DistBackendError, match=told):
        group.submit(Call("barrier"))


@pytest.mark.parametrize("error", [ValueError("tag 7"), NotImplementedError("no")])
def test_what_is_refused_leaves_the_group_whole(error):
    group = Interrupted(HashStore(), error)
    for _ in range(2):
        with pytest.raises(type(error), match=str(error)):
            group.submit(Call("recv", np.zeros(4), peer=1))
    assert group.failure is None
