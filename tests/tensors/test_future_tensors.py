"""Futures of operations on torch tensors; ranks are threads."""

import gc
import time
import weakref

import pytest

import allhands as dist
from harness.ranks import LIMIT, run_ranks

torch = pytest.importorskip("torch")


class Held:
    """What a function has while it waits."""


def wait_in_vain(future):
    """Returns a reference to what this function held, and the error."""
    held = Held()
    with pytest.raises(
        dist.CollectiveMismatchError, match=r"count 1.* count 2"
    ) as info:
        future.wait()
    return weakref.ref(held), info.value


def collect(held):
    """Returns once what `held` refers to is gone."""
    end = time.monotonic() + LIMIT
    while held() is not None:
        assert time.monotonic() < end
        gc.collect()  # does nothing while the other rank's thread does so


def test_a_future_that_failed_does_not_hold_who_waited():
    def body(rank):
        future = dist.all_reduce(torch.ones(1 + rank), async_op=True).get_future()
        errors = []
        for _ in range(2):
            held, error = wait_in_vain(future)
            errors.append((type(error), str(error), error.ranks))
            del error
            collect(held)
        return errors[0] == errors[1]

    assert run_ranks(2, body) == [True, True]
