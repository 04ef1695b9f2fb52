"""dist.debug.faults and ALLHANDS_FAULTS: what happens to ranks, which are threads."""

import os
import signal
import time
import traceback
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.call import OPERATIONS
from allhands.groups.world import World, current, use
from harness.ranks import LIMIT, RanksFailed, outcomes, run_ranks

X, Y = np.ones(2), np.zeros(2)
CALLS = {
    "all_reduce": lambda: dist.all_reduce(X),
    "reduce": lambda: dist.reduce(X, 0),
    "reduce_scatter": lambda: dist.reduce_scatter(Y, [X]),
    "reduce_scatter_single": lambda: dist.reduce_scatter_single(Y, X),
    "scan": lambda: dist.scan(Y, X),
    "exscan": lambda: dist.exscan(Y, X),
    "broadcast": lambda: dist.broadcast(X, 0),
    "all_gather": lambda: dist.all_gather([Y], X),
    "all_gather_single": lambda: dist.all_gather_single(Y, X),
    "gather": lambda: dist.gather(X, [Y], 0),
    "gather_single": lambda: dist.gather_single(X, Y, 0),
    "scatter": lambda: dist.scatter(Y, [X], 0),
    "all_to_all": lambda: dist.all_to_all([Y], [X]),
    "all_to_all_single": lambda: dist.all_to_all_single(Y, X),
    "barrier": lambda: dist.barrier(async_op=True),
    "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([X]),
    "all_gather_coalesced": lambda: dist.all_gather_coalesced([[Y]], [X]),
    "all_gather_single_coalesced": lambda: dist.group.WORLD.all_gather_single_coalesced(
        [Y], [X]
    ),
    "reduce_scatter_single_coalesced": lambda: (
        dist.group.WORLD.reduce_scatter_single_coalesced([Y], [X])
    ),
    "send": lambda: dist.isend(X, 0),
    "recv": lambda: dist.irecv(X, 0),
    "recv_status": lambda: dist.irecv(X, 0, status=dist.Status()),
    "probe": lambda: dist.probe(0),
    "iprobe": lambda: dist.iprobe(0),
    "all_gather_object": lambda: dist.all_gather_object([None, None], 1),
    "gather_object": lambda: dist.gather_object(1, [None, None]),
    "broadcast_object_list": lambda: dist.broadcast_object_list([1]),
    "scatter_object_list": lambda: dist.scatter_object_list([None], [1, 1]),
    "send_object_list": lambda: dist.send_object_list([1], 1),
    "recv_object_list": lambda: dist.recv_object_list([None], 1),
    "all_reduce_object": lambda: dist.all_reduce_object(1),
    "reduce_object": lambda: dist.reduce_object(1),
    "split_group_by_color": lambda: dist.split_group_by_color(0),
    "empty_shared": lambda: dist.empty_shared(2, np.float32),
    "new_group": lambda: dist.new_group([0]),
    "merge_remote_group": lambda: dist.group.WORLD.merge_remote_group(
        dist.HashStore(), 1
    ),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_every_operation_can_be_asked_to_raise():
    def body(rank):
        for op, call in CALLS.items() if rank == 0 else ():
            with (
                dist.debug.faults(f"op={op},do=raise") as asked,
                pytest.raises(dist.InjectedError, match=f"rank 0, {op}, call 1: do="),
            ):
                call()
            assert asked.num_done == 1

    assert set(OPERATIONS) <= set(CALLS)
    run_ranks(2, body)


def test_init_process_group_can_be_asked_to_raise():
    def body(rank):
        store = dist.HashStore()
        with (
            dist.debug.faults("op=init_process_group,do=raise"),
            pytest.raises(dist.InjectedError, match="rank 0, init_process_group"),
        ):
            dist.init_process_group(store=store, rank=0, world_size=1)
        assert not dist.is_initialized()

    run_ranks(1, body, init=False)


def test_requests_of_the_program_to_stores_can_be_asked_to_raise():
    def body(rank):
        store = dist.HashStore()
        with dist.debug.faults("rank=0,op=store.get,nth=2,do=raise") as asked:
            dist.new_group([0, 1])  # which asks a store, too
            store.set("a", "1")
            assert store.get("a") == b"1"
            if rank == 0:
                with pytest.raises(dist.InjectedError, match=r"rank 0, store\.get, "):
                    dist.PrefixStore("p", store).get("a")
            assert store.get("a") == b"1"
        assert asked.num_done == (rank == 0)

    run_ranks(2, body)


def test_a_link_that_is_not_there_cannot_be_dropped(monkeypatch):
    told = r"do=drop-link cuts .*: \[0, 1\] of this world are on one host; with anoth"

    def body(rank):
        with (
            pytest.raises(ValueError, match=told),
            dist.debug.faults("op=send,do=drop-link"),
        ):
            pass
        dist.barrier()

    run_ranks(2, body)
    monkeypatch.setenv("ALLHANDS_FAULTS", "rank=1,op=send,do=drop-link:0")
    with pytest.raises(RanksFailed) as failed:
        run_ranks(2, body)
    for error in failed.value.errors.values():
        assert isinstance(error, ValueError)
        assert "of this world are on one host" in str(error)


def test_without_faults_nothing_stands_in_front_of_a_group():
    def body(rank):
        world = dist.group.WORLD
        plain, seen = world.communicator, []
        with dist.debug.faults("op=barrier,do=raise"):
            world.register_pre_hook(1, lambda told: seen.append(told.op))
            with dist.debug.faults("op=scan,do=raise"), pytest.raises(RuntimeError):
                dist.scan(Y.copy(), X)
            with pytest.raises(dist.InjectedError):
                dist.barrier()
            dist.scan(Y.copy(), X)
            later = dist.new_group([0], group_desc="later")
            with pytest.raises(dist.InjectedError):
                dist.barrier(group=later)
        dist.barrier()
        world.unregister_pre_hook(1)
        dist.barrier(group=later)
        assert world.communicator is plain
        assert type(later.communicator) is type(plain)
        assert seen == ["scan", "barrier"]  # none of what did not begin

    run_ranks(1, body)


def test_a_rank_that_is_delayed_is_waited_for(capsys):
    def body(rank):
        text = "rank=1,op=all_reduce,nth=2-3,do=delay:30ms"
        with dist.debug.faults(text) as asked:
            dist.barrier()
            began = time.monotonic()
            for _ in range(4):
                dist.all_reduce(np.ones(1))
            took = time.monotonic() - began
        assert took >= 0.06
        return asked.num_done

    assert run_ranks(2, body) == [0, 2]
    told = (
        "allhands: [rank1] faults: fault on demand: rank 1, all_reduce, call 2: "
        "do=delay:0.03s\n"
    )
    assert capsys.readouterr().err == told


def test_who_waits_for_a_rank_that_raised_names_it():
    def body(rank):
        with dist.debug.faults("rank=1,group=pair,do=raise"):
            group = dist.new_group([0, 1], group_desc="pair")
            dist.barrier()
            dist.barrier(group=group, timeout=timedelta(seconds=0.2))

    late, raised = outcomes(2, body)
    assert isinstance(raised, dist.InjectedError)
    assert isinstance(late, dist.CollectiveTimeoutError | dist.RankFailedError)
    assert late.ranks == [1]  # which may have left by then


def test_the_setting_holds_for_each_world_and_counts_on(monkeypatch):
    monkeypatch.setenv("ALLHANDS_FAULTS", "op=barrier,nth=2,do=raise")

    def body(rank):
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        with pytest.raises(dist.InjectedError, match="call 2"):
            dist.barrier()
        dist.barrier()
        dist.destroy_process_group()
        monkeypatch.setenv("ALLHANDS_FAULTS", "")
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        for _ in range(3):
            dist.barrier()
        monkeypatch.setenv("ALLHANDS_FAULTS", "op=barier,do=raise")
        dist.destroy_process_group()
        told = "variable ALLHANDS_FAULTS is 'op=barier,do=raise': .*perhaps barrier"
        with pytest.raises(ValueError, match=told):
            dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        assert not dist.is_initialized()
        assert current().groups == {}

    run_ranks(1, body)


def test_a_rank_that_the_world_lacks_is_told(capsys):
    def body(rank):
        with dist.debug.faults("rank=1,do=delay:1us;rank=2,do=kill;rank=7,do=stop"):
            dist.barrier()

    run_ranks(2, body)
    [line] = [each for each in capsys.readouterr().err.splitlines() if "asked" in each]
    assert line == (
        "allhands: [rank0] faults: faults are asked for on ranks [2, 7], but this "
        "world has 2 ranks, from 0 on"
    )


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_no_faults_of_its_parent(monkeypatch):
    """Nor their counts, nor a lock that another thread had."""
    monkeypatch.setenv("ALLHANDS_FAULTS", "op=barrier,nth=2,do=raise")

    def begin():
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        dist.barrier()

    def be_child():
        begin()
        dist.scan(Y.copy(), X)
        with pytest.raises(dist.InjectedError, match="rank 0, barrier, call 2"):
            dist.barrier()

    with use(World()), dist.debug.faults("op=scan,do=raise") as asked:
        begin()
        with asked._lock:  # as another thread may have it
            child = os.fork()
            if not child:
                _exit_after(be_child)
        dist.destroy_process_group()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def _exit_after(call):
    """End this child: 7 where all went well."""
    signal.alarm(int(LIMIT))
    try:
        call()
        os._exit(7)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
