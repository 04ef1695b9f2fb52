"""What every Communicator does with a Call, whichever it is; ranks are threads.

Jobs of Gloo, MPI, oneCCL and NCCL run it, too, with the plugins `harness.gloo_ranks`,
`mpi_ranks`, `xccl_ranks` and `fake_nccl_ranks`; there `native` below stands for their
communicators, and only `contract.IN_JOBS` are made. What is skipped stands in
`harness.contract`.
"""

import gc
import weakref
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.call import Call
from allhands.backends.coalescing import CoalescingCommunicator
from allhands.backends.communicator import Communicator, CommunicatorOptions
from allhands.backends.content_check import CheckedCommunicator
from allhands.backends.fake import FakeCommunicator
from allhands.backends.native import NativeCommunicator
from allhands.backends.per_device import PerDeviceCommunicator
from allhands.groups.user_group import UserGroupCommunicator
from allhands.groups.world import current
from allhands.store import PrefixStore
from harness import contract, documents, ranks
from harness.every_call import (
    ALL,
    SIZE,
    TOTAL,
    coalesced_of,
    everything_of,
    flat,
    nothing,
    numbers,
    unlike,
)
from harness.ranks import run_ranks


def delegating(name):
    return lambda self, *arguments: getattr(dist.group.WORLD, name)(*arguments)


OVERRIDDEN = [
    *("allreduce", "reduce", "reduce_scatter", "reduce_scatter_single", "broadcast"),
    *("allgather", "all_gather_single", "gather", "gather_single", "scatter"),
    "alltoall",
    *("all_to_all_single", "barrier", "send", "recv", "recv_anysource"),
]
COALESCED = [
    *("allreduce_coalesced", "allgather_coalesced", "all_gather_single_coalesced"),
    "reduce_scatter_single_coalesced",
]
UsersGroup = type(
    "UsersGroup",
    (dist.ProcessGroup,),
    {name: delegating(name) for name in OVERRIDDEN},
)
UsersCoalescingGroup = type(
    "UsersCoalescingGroup",
    (UsersGroup,),
    {name: delegating(name) for name in COALESCED},
)


class OneByOne(Communicator):
    """A backend that knows no coalesced operation."""

    def __init__(self, communicator):
        self.communicator = communicator

    def submit(self, call):
        if call.op.endswith("_coalesced"):
            return super().submit(call)
        return self.communicator.submit(call)

    def set_timeout(self, timeout):
        self.communicator.set_timeout(timeout)

    def abort(self, reason):
        self.communicator.abort(reason)

    def close(self, grace):
        self.communicator.close(grace)


def documented():
    """The class that the documents have written."""
    page = documents.read(documents.ROOT / "docs" / "howto" / "write-a-backend.md")
    names = {}
    exec(page.programs()["through_store.py"], names)
    return names["StoreCommunicator"]


def options_of(world, num_alike=0):
    return CommunicatorOptions(
        store=PrefixStore("documented", world.get_group_store()),
        group_rank=world.rank(),
        group_size=world.size(),
        timeout=world.timeout,
        group_id=world.group_name,
        global_ranks_in_group=world.global_ranks,
        num_alike=num_alike,
        roster=current().roster,
    )


class Documented(documented()):
    """It, made as `register_backend` would make it for the group of all ranks."""

    def __init__(self, world):
        super().__init__(options_of(world), None)


def with_content_check(world):
    """What stands in front of a group where contents are compared."""
    beside = NativeCommunicator(options_of(world, num_alike=-1))
    checked = CheckedCommunicator(world.communicator, beside, options_of(world))
    current().close_with_it(checked)
    return checked


MAKERS = {
    "native": lambda world: world.communicator,
    "per-device": lambda world: PerDeviceCommunicator({"cpu": world.communicator}),
    "one by one": lambda world: OneByOne(world.communicator),
    "user's group": lambda world: UserGroupCommunicator(UsersGroup(0, SIZE)),
    "user's group that coalesces": lambda world: UserGroupCommunicator(
        UsersCoalescingGroup(0, SIZE)
    ),
    "documents": Documented,
    "content check": with_content_check,
    "fake": lambda world: FakeCommunicator(),
}


@pytest.fixture(params=MAKERS if ranks.BACKEND == "native" else contract.IN_JOBS)
def make(request):
    test = request.node.originalname
    below = None if request.param in ("fake", "documents") else ranks.BACKEND
    for name in (request.param, below):
        reason = contract.why_skipped(name, test)
        if reason is not None:
            pytest.skip(reason)
    return MAKERS[request.param]


@pytest.mark.parametrize("async_op", [False, True])
def test_every_collective(make, async_op):
    def body(rank):
        communicator = make(dist.group.WORLD)
        for call, expected in everything_of(rank):
            work = communicator.submit(replace(call, async_op=async_op))
            assert (work is None) is not async_op
            if work is not None:
                assert work.wait()
            assert unlike(call, expected) == []

    run_ranks(SIZE, body)


@pytest.mark.parametrize("async_op", [False, True])
def test_every_coalesced_operation(make, async_op):
    def body(rank):
        communicator = make(dist.group.WORLD)
        for call, expected in coalesced_of(rank):
            work = communicator.submit(replace(call, async_op=async_op))
            assert (work is None) is not async_op
            if work is not None:
                assert work.wait()
                assert work.result() is call.output
            for output, want in zip(flat(call.output), flat(expected), strict=True):
                assert np.array_equal(output, want), call.op

    run_ranks(SIZE, body)


@pytest.fixture
def no_collector():
    """Nobody looks for cycles: what is in one is kept."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("async_op", [False, True])
def test_no_output_is_kept(no_collector, make, async_op):
    def body(rank):
        communicator = make(dist.group.WORLD)
        calls = [replace(call, async_op=async_op) for call, _ in everything_of(rank)]
        while calls:
            call = calls.pop()
            op, seen = call.op, [weakref.ref(array) for array in call.outputs()]
            work = communicator.submit(call)
            if async_op:
                work.wait()
            del call, work
            assert not [kept for kept in seen if kept() is not None], op

    run_ranks(SIZE, body)


@pytest.mark.parametrize("kind", ["all_gather", "all_gather_single"])
def test_coalesced_lists_of_unlike_length_are_refused(make, kind):
    def body(rank):
        communicator = make(dist.group.WORLD)
        outputs = [nothing(12)] * 2
        if kind == "all_gather":
            outputs = [[nothing()] * 2] * SIZE
        with pytest.raises(RuntimeError, match=r"[12]\b.*[12]\b"):
            communicator.submit(Call(f"{kind}_coalesced", outputs, [numbers(rank)]))
        communicator.barrier(None, False)

    run_ranks(SIZE, body)


def test_a_call_returns_a_work_only_where_it_is_asynchronous(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        for call, _ in everything_of(rank):
            assert communicator.submit(call) is None
            work = communicator.submit(replace(call, async_op=True))
            assert work.wait()
            assert work.is_completed()
            assert work.exception() is None

    run_ranks(SIZE, body)


def test_the_methods_are_calls(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        x = numbers(rank)
        assert communicator.all_reduce(x, dist.ReduceOp.MAX, None, False) is None
        assert np.array_equal(x, numbers(SIZE - 1))
        communicator.broadcast(x, 0, timedelta(seconds=100), True).wait()
        splits = [peer + 1 for peer in range(SIZE)], [rank + 1] * SIZE
        output, mine = nothing(sum(splits[0])), np.full(SIZE * (rank + 1), float(rank))
        communicator.all_to_all_single(output, mine, *splits, None, False)
        assert output.tolist() == [0, 1, 1, 2, 2, 2]

    run_ranks(SIZE, body)


def test_messages(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        left, right = (rank - 1) % SIZE, (rank + 1) % SIZE
        here = nothing()
        received = communicator.irecv(here, left, 5, None)
        sent = communicator.isend(numbers(rank), right, 5, None)
        assert sent.wait()
        assert received.wait()
        assert np.array_equal(here, numbers(left))
        source = communicator.sendrecv(numbers(rank), right, 7, here, left, 7, None)
        assert source == left
        assert np.array_equal(here, numbers(left))

    run_ranks(SIZE, body)


def test_messages_of_any_source(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        here = nothing()
        if rank == 0:
            communicator.send(numbers(7), 1, 6, None)
        elif rank == 1:
            assert communicator.recv(here, None, 6, None) == 0
            assert np.array_equal(here, numbers(7))
        dist.barrier()

    run_ranks(SIZE, body)


def test_receives_that_tell_what_came(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        for async_op in (False, True):
            here = nothing(6)
            if rank == 0:
                communicator.send(numbers(7), 1, 6, None)
            elif rank == 1:
                call = Call("recv_status", here, None, None, async_op, tag=dist.ANY_TAG)
                work = communicator.submit(call)
                assert work.is_completed() or async_op
                assert work.wait()
                assert work.envelope() == (0, 6, 32)
                assert here.tolist() == [*numbers(7), -1, -1]
        dist.barrier()

    run_ranks(SIZE, body)


def test_probes(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        here = nothing()
        look = {"peer": 0, "tag": dist.ANY_TAG}
        if rank == 0:
            communicator.recv(nothing(1), 1, 0, None)
            communicator.send(numbers(7), 1, 6, None)
        elif rank == 1:
            assert communicator.submit(Call("iprobe", **look)) is None
            communicator.send(numbers(1, 1), 0, 0, None)
            work = communicator.submit(Call("probe", **look))
            assert work.envelope() == (0, 6, 32)
            work = communicator.submit(Call("iprobe", **look))
            assert work.envelope() == (0, 6, 32)
            communicator.recv(here, 0, 6, None)
            assert np.array_equal(here, numbers(7))
        dist.barrier()

    run_ranks(SIZE, body)


def test_a_message_to_itself(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        here = nothing()
        received = communicator.irecv(here, rank, 3, None)
        communicator.isend(numbers(rank), rank, 3, None).wait()
        assert received.wait()
        assert np.array_equal(here, numbers(rank))

    run_ranks(2, body)


def test_scans(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        here = nothing()
        communicator.submit(Call("scan", here, numbers(rank)))
        assert np.array_equal(here, sum(ALL[: rank + 1]))
        communicator.submit(Call("exscan", here, numbers(rank)))
        assert rank == 0 or np.array_equal(here, sum(ALL[:rank]))

    run_ranks(SIZE, body)


def test_shared_arrays(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        mine = communicator.empty_shared((2,), np.float64, None)
        mine[:] = rank
        dist.barrier()
        peers = [communicator.peer_array(mine, peer) for peer in range(SIZE)]
        assert [peer.tolist() for peer in peers] == [[0, 0], [1, 1], [2, 2]]
        dist.barrier()

    run_ranks(SIZE, body)


def test_ranks_that_call_different_things_are_told_so(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        x = numbers(rank, 4 + rank)
        with pytest.raises(dist.CollectiveMismatchError, match="all_reduce"):
            communicator.submit(Call("all_reduce", x, x))
        assert np.array_equal(x, numbers(rank, 4 + rank))

    run_ranks(2, body)


def test_a_prepared_call_runs_again_and_again(make):
    def body(rank):
        communicator = make(dist.group.WORLD)
        x = np.ones(2)
        request = communicator.prepare(Call("all_reduce", x, x))
        request()
        request.start()
        assert request.is_active()
        with pytest.raises(
            RuntimeError, match="persistent all_reduce: it is under way"
        ):
            request()
        assert request.wait()
        assert not request.is_active()
        with pytest.raises(RuntimeError, match="nothing to wait for"):
            request.wait()
        assert x.tolist() == [SIZE**2] * 2

    run_ranks(SIZE, body)


def test_a_prepared_call_that_is_refused_may_be_tried_again():
    def body(rank):
        x = np.ones(2, bool)
        refusing = MAKERS["user's group"](dist.group.WORLD)
        request = refusing.prepare(
            Call("all_reduce", x, x, reduce_op=dist.ReduceOp.AVG)
        )
        for run in (request, request.start, request):
            with pytest.raises((RuntimeError, TypeError, ValueError), match="AVG"):
                run()
            assert not request.is_active()

    run_ranks(1, body)


@pytest.mark.parametrize("op", ["gossip", "gossip_coalesced"])
def test_an_unknown_operation_is_refused_by_name(make, op):
    def body(rank):
        communicator = make(dist.group.WORLD)
        with pytest.raises(NotImplementedError, match=r"does not support gossip"):
            communicator.submit(Call(op, [numbers(0)], [numbers(0)]))

    run_ranks(1, body)


@pytest.mark.parametrize("op", ["scan", "exscan"])
def test_what_torch_has_no_method_for_is_refused_by_a_users_group(op):
    class Scanning(UsersGroup):
        def scan(self):
            pytest.fail("nothing says what its arguments are")

        exscan = scan

    x = numbers(0)
    with pytest.raises(NotImplementedError, match=f"Scanning does not support {op}"):
        UserGroupCommunicator(Scanning(0, 1)).submit(Call(op, x, x))


def test_a_fault_on_demand_comes_before_the_operation():
    def body(rank):
        x = numbers(rank)
        with dist.debug.faults("op=all_reduce,nth=2,do=raise"):
            dist.all_reduce(x)
            with pytest.raises(dist.InjectedError, match=f"rank {rank}, all_reduce"):
                dist.all_reduce(x)
            dist.barrier()
        np.testing.assert_array_equal(x, TOTAL)
        dist.all_reduce(x)
        np.testing.assert_array_equal(x, SIZE * TOTAL)

    run_ranks(SIZE, body)


def test_a_coalescing_communicator_starts_everything(make):
    def body(rank):
        works = []
        communicator = CoalescingCommunicator(make(dist.group.WORLD), works)
        calls = everything_of(rank)
        for call, _ in calls:
            assert communicator.submit(call) is None
        assert len(works) == len(calls)
        for work, (call, expected) in zip(works, calls, strict=True):
            assert work.wait()
            assert unlike(call, expected) == []

    run_ranks(SIZE, body)


def test_closing_twice_does_nothing(make):
    def body(rank):
        communicator = make(dist.new_group())
        communicator.set_timeout(timedelta(seconds=5))
        communicator.close(1.0)
        communicator.close(1.0)

    run_ranks(2, body)
