"""Every operation of a rank passes its observer once; ranks are threads."""

import signal
import sys
import threading
from collections import Counter
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.observer import OperationRecord, observing
from allhands.backends.per_device import PerDeviceCommunicator
from allhands.groups.world import World, current, use
from allhands.store import HashStore
from harness.ranks import run_ranks


class Notebook:
    """An observer that notes what it is told."""

    def __init__(self):
        self.begun = []
        self.ended = {}
        self._changed = threading.Condition()

    def before(self, operation):
        with self._changed:
            self.begun.append(operation)
            return len(self.begun) - 1

    def after(self, token, error):
        with self._changed:
            assert token not in self.ended
            self.ended[token] = error
            self._changed.notify_all()

    def errors(self):
        """What each operation ended with, once all have."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: len(self.ended) == len(self.begun), timeout=100
            )
            return [self.ended[token] for token in range(len(self.begun))]

    def names(self):
        assert self.errors() == [None] * len(self.begun)
        return [told.op for told in self.begun]

    def forget(self):
        self.errors()
        self.begun, self.ended = [], {}


def watched(body):
    """Run `body(rank, notebook)` as two ranks whose worlds are observed."""

    def run(rank):
        notebook = Notebook()
        current().observe(notebook)
        body(rank, notebook)

    run_ranks(2, run)


def test_what_an_observer_is_told():
    def body(rank, notebook):
        x, peer = np.ones(3, np.float32), 1 - rank
        dist.all_reduce(x)
        work = dist.broadcast(x, 1, async_op=True)
        work.wait()
        received = dist.irecv(x, tag=4)
        dist.send(x, peer, tag=4)
        received.wait()
        world = dist.group.WORLD.group_name
        notebook.errors()
        assert notebook.begun == [
            OperationRecord(world, "all_reduce", 1, "float32", 3),
            OperationRecord(world, "broadcast", 2, "float32", 3, 1, async_op=True),
            OperationRecord(world, "recv", 0, "float32", 3, tag=4, async_op=True),
            OperationRecord(world, "send", 0, "float32", 3, peer=peer, tag=4),
        ]
        dist.barrier()

    watched(body)


def test_every_kind_of_operation_passes_once():
    def body(rank, notebook):
        x, y, peer = np.ones(2), np.zeros(2), 1 - rank

        def tells(*names):
            assert notebook.names() == list(names)
            notebook.forget()

        request = dist.barrier_init()
        request()
        request.start()
        request.wait()
        tells("barrier", "barrier")
        with dist._coalescing_manager():
            dist.all_reduce(x)
            dist.all_reduce(y)
        tells("all_reduce", "all_reduce")
        dist.group.WORLD.allreduce_coalesced([x, y]).wait()
        tells("all_reduce_coalesced")
        dist.empty_shared(3, np.float32)
        tells("empty_shared")
        dist.monitored_barrier()
        tells("barrier")
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]
        ):
            work.wait()
        tells("send", "recv")
        dist.sendrecv(x, y, dst=peer, src=peer)
        tells("recv", "send")
        dist.group.WORLD.allreduce([x]).wait()
        tells("all_reduce")
        dist.new_group([0, 1])
        tells("new_group")
        dist.barrier()

    watched(body)


def test_an_object_operation_is_one_and_those_that_it_is_made_of():
    def body(rank, notebook):
        dist.all_gather_object([None, None], "x")
        names = notebook.names()
        assert names[0] == "all_gather_object"
        assert set(names[1:]) == {"all_gather"}
        notebook.forget()
        if rank == 0:
            dist.send_object_list(["x"], 1)
        else:
            dist.recv_object_list([None], 0)
        names = notebook.names()
        assert names[0] == ("send_object_list" if rank == 0 else "recv_object_list")
        assert set(names[1:]) == {"send" if rank == 0 else "recv"}

    watched(body)


def test_how_an_operation_failed():
    def body(rank, notebook):
        x = np.ones(2)
        with pytest.raises(dist.CollectiveMismatchError):
            dist.broadcast(x, rank)
        work = dist.broadcast(x, rank, async_op=True)
        with pytest.raises(dist.CollectiveMismatchError):
            work.wait()
        with pytest.raises(dist.CollectiveTimeoutError):
            dist.recv(x, 1 - rank, timeout=timedelta(milliseconds=1))
        with pytest.raises(RuntimeError, match="invalid root"):
            dist.broadcast(x, 7)  # does not begin
        with pytest.raises(ValueError, match="deliberate"):
            dist.all_gather_object([None, None], Unpicklable())
        kinds = [type(error) for error in notebook.errors()]
        assert kinds[:3] == [
            dist.CollectiveMismatchError,
            dist.CollectiveMismatchError,
            dist.CollectiveTimeoutError,
        ]
        assert kinds[3] is ValueError
        assert notebook.errors()[0].ranks == [1 - rank]

    watched(body)


class Unpicklable:
    def __reduce__(self):
        raise ValueError("deliberate")


def test_the_wait_for_all_ranks_of_a_world_and_groups_made_later():
    store = HashStore()
    notebooks = [Notebook(), Notebook()]

    def body(rank):
        world = World()
        world.observe(notebooks[rank])
        with use(world):
            dist.init_process_group(store=store, rank=rank, world_size=2)
            pair = dist.new_group([0, 1])
            dist.barrier(pair)
            dist.destroy_process_group()

    run_ranks(2, body, init=False)
    for notebook in notebooks:
        assert notebook.names() == ["init_process_group", "new_group", "barrier"]
        assert notebook.begun[2].group == "1"


def test_a_world_that_does_not_come_together():
    notebook = Notebook()
    world = World()
    world.observe(notebook)
    with use(world), pytest.raises(dist.DistStoreError):
        dist.init_process_group(
            store=HashStore(),
            rank=0,
            world_size=2,
            timeout=timedelta(milliseconds=50),
        )
    [error] = notebook.errors()
    assert isinstance(error, dist.DistStoreError)


def test_what_stands_in_front_of_a_communicator_hands_an_observer_on():
    def body(rank):
        notebook, world = Notebook(), dist.group.WORLD
        PerDeviceCommunicator({"cpu": world.communicator}).observe(notebook)
        dist.barrier()
        PerDeviceCommunicator({"cpu": world.communicator}).observe(None)
        world.register_pre_hook(1, lambda told: None)
        current().observe(notebook)
        dist.all_reduce(np.ones(1))
        world.unregister_pre_hook(1)
        dist.broadcast(np.ones(1), 0)
        assert notebook.names() == ["barrier", "all_reduce", "broadcast"]

    run_ranks(2, body)


def test_nobody_watches_any_more():
    def body(rank, notebook):
        dist.barrier()
        current().observe(None)
        dist.barrier()
        dist.all_gather_object([None, None], 1)
        assert notebook.names() == ["barrier"]

    watched(body)


def test_what_an_observer_raises_is_reported_and_ends_nothing(monkeypatch):
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reports.append(args))

    class Broken:
        def before(self, operation):
            if operation.op == "barrier":
                raise RuntimeError("deliberate")
            return 0

        def after(self, token, error):
            raise KeyError(token)

    def body(rank):
        current().observe(Broken())
        dist.barrier()  # nobody is told that it has ended
        dist.all_reduce(np.ones(1))

    run_ranks(2, body)
    assert Counter(args.exc_type for args in reports) == {RuntimeError: 2, KeyError: 2}


def test_ctrl_c_in_an_observer_is_for_the_program():
    class Interrupted(Notebook):
        def before(self, operation):
            signal.raise_signal(signal.SIGINT)
            return super().before(operation)

    world = World()
    with use(world):
        dist.init_process_group(store=HashStore(), rank=0, world_size=1)
        notebook = Interrupted()
        world.observe(notebook)

        def call():
            dist.barrier()
            sum(range(1000))  # by here a signal is looked for

        hook, sys.unraisablehook = sys.unraisablehook, lambda args: None
        try:
            with pytest.raises(KeyboardInterrupt):
                call()
        finally:
            sys.unraisablehook = hook
        dist.destroy_process_group()
    assert notebook.begun == []


def test_a_block_that_nobody_watches():
    with observing(None, "0", "nothing"), pytest.raises(ValueError, match="deliberate"):
        raise ValueError("deliberate")
