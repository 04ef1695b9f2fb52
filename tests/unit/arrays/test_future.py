"""Futures of arrays that are not torch's."""

import asyncio
import threading
import weakref
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.arrays.future import Future
from allhands.backends import failures
from harness.ranks import LIMIT, run_ranks


def test_it_has_torchs_methods():
    future = Future()
    assert not future.done()
    with pytest.raises(RuntimeError, match=r"no value yet: call wait\(\)"):
        future.value()
    threading.Thread(target=future.set_result, args=[5]).start()
    assert future.wait() == 5
    assert future.value() == 5
    assert future.done()
    seen = []
    future.add_done_callback(seen.append)
    assert seen == [future]


def test_then_gives_a_future_of_what_the_callback_returns():
    future = Future()
    after = future.then(lambda done: done.value() + 1).then(
        lambda done: done.wait() * 2
    )
    assert not after.done()
    future.set_result(5)
    assert after.wait() == 12


def test_an_error_passes_on():
    future = Future()
    after = future.then(lambda done: done.value())
    future.set_exception(ValueError("no"))
    for waits in (future.wait, future.value, after.wait, after.value):
        with pytest.raises(ValueError, match="no"):
            waits()


def test_it_cannot_be_cancelled():
    assert not Future().cancel()


def test_asyncio_can_wait_for_it():
    future = Future()

    async def main():
        asyncio.get_running_loop().call_later(0, future.set_result, 3)
        return await asyncio.wrap_future(future)

    assert asyncio.run(main()) == 3


def futures_of(rank):
    x, parts = np.ones(1), [np.zeros(1), np.zeros(1)]
    yield dist.all_reduce(x, async_op=True).get_future()
    yield dist.barrier(async_op=True).get_future()
    gathered = dist.gather(x, parts if rank == 0 else None, async_op=True)
    yield gathered.get_future()
    message = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
    yield message.get_future()
    with pytest.warns(FutureWarning):
        yield dist.all_reduce_coalesced([x], async_op=True)
    with pytest.warns(FutureWarning):
        yield dist.all_gather_coalesced([[p] for p in parts], [x], async_op=True)
    yield dist.all_reduce(x, async_op=True).get_future_result()


def test_every_operation_gives_the_same_kind():
    def body(rank):
        for future in futures_of(rank):
            assert isinstance(future, Future)
            assert future.then(lambda done: done.value()).wait() == future.wait()

    run_ranks(2, body)


def test_who_waits_tells_of_an_error_once():
    """And not the callbacks, which may run in the thread that moves all messages."""
    told = []
    future = Future()
    future.before_raising = lambda error: told.append((error, threading.get_ident()))
    after = future.then(lambda done: done.wait())
    error = ValueError()
    resolving = threading.Thread(target=future.set_exception, args=[error])
    resolving.start()
    resolving.join()
    assert future.exception() is error
    assert not told
    for each in (after, future, after):
        with pytest.raises(ValueError):
            each.wait()
    assert told == [(error, threading.get_ident())]


def test_a_signals_handler_may_wait_while_that_is_told():
    future, seen = Future(), []

    def handler(_):
        with pytest.raises(ValueError):
            future.result()
        seen.append("handled")

    future.before_raising = handler
    threading.Thread(target=future.set_exception, args=[ValueError()]).start()

    def wait():
        with pytest.raises(ValueError):
            future.result()
        seen.append("waited")

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(LIMIT)
    assert seen == ["handled", "waited"]


def test_a_failing_operation_is_told_of(monkeypatch):
    told = []
    monkeypatch.setattr(failures, "_listener", lambda error, _: told.append(error))

    def body(rank):
        array = np.ones(3)
        dist.barrier()
        if rank == 0:
            limit = timedelta(milliseconds=1)
            future = dist.irecv(array, 1, timeout=limit).get_future()
            with pytest.raises(dist.CollectiveTimeoutError) as caught:
                future.result()
            assert told == [caught.value]
        dist.barrier()

    run_ranks(2, body)


def test_a_future_that_another_one_came_after_is_in_no_cycle():
    future = Future()
    after = future.then(lambda done: len(done.value()))
    seen = weakref.ref(future)
    future.set_result([1, 2])
    del future
    assert after.wait() == 2
    assert seen() is None
