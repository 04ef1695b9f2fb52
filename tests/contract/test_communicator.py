"""What every Communicator does with a Call, whichever it is; ranks are threads."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

import allhands as dist
from allhands.backends.call import Call
from allhands.backends.coalescing import CoalescingCommunicator
from allhands.backends.fake import FakeCommunicator
from allhands.backends.per_device import PerDeviceCommunicator
from allhands.groups.user_group import UserGroupCommunicator
from harness.ranks import run_ranks

SIZE = 3
ROOT = 1


def delegating(name):
    return lambda self, *arguments: getattr(dist.group.WORLD, name)(*arguments)


OVERRIDDEN = [
    *("allreduce", "reduce", "reduce_scatter", "reduce_scatter_single", "broadcast"),
    *("allgather", "all_gather_single", "gather", "scatter", "alltoall"),
    *("all_to_all_single", "barrier", "send", "recv", "recv_anysource"),
]
UsersGroup = type(
    "UsersGroup",
    (dist.ProcessGroup,),
    {name: delegating(name) for name in OVERRIDDEN},
)


MAKERS = {
    "native": lambda world: world.communicator,
    "per-device": lambda world: PerDeviceCommunicator({"cpu": world.communicator}),
    "user's group": lambda world: UserGroupCommunicator(UsersGroup(0, SIZE)),
    "fake": lambda world: FakeCommunicator(),
}
MOVING = [name for name in MAKERS if name != "fake"]


def numbers(rank, length=4):
    return np.arange(length, dtype=np.float64) + 10 * rank


def nothing(length=4):
    return np.full(length, -1.0)


def list_of(make):
    return [make() for _ in range(SIZE)]


ALL = [numbers(rank) for rank in range(SIZE)]
TOTAL = sum(ALL)


def everything_of(rank):
    """A Call of each collective on this rank, and what it is to leave there."""
    is_root = rank == ROOT
    summed, reduced, copied = numbers(rank), numbers(rank), numbers(rank)
    rows = [numbers(rank) + 100 * peer for peer in range(SIZE)]
    mine = [numbers(peer) + 100 * rank for peer in range(SIZE)]
    scattered = sum(mine)
    return [
        (Call("all_reduce", summed, summed), TOTAL),
        (
            Call("reduce", reduced, reduced, root=ROOT),
            TOTAL if is_root else numbers(rank),
        ),
        (Call("reduce_scatter", nothing(), rows), scattered),
        (Call("reduce_scatter_single", nothing(), np.concatenate(rows)), scattered),
        (Call("broadcast", copied, copied, root=ROOT), numbers(ROOT)),
        (Call("all_gather", list_of(nothing), numbers(rank)), ALL),
        (
            Call("all_gather_single", nothing(4 * SIZE), numbers(rank)),
            np.concatenate(ALL),
        ),
        (
            Call(
                "gather",
                list_of(nothing) if is_root else None,
                numbers(rank),
                root=ROOT,
            ),
            ALL if is_root else [],
        ),
        (
            Call("scatter", nothing(), ALL if is_root else None, root=ROOT),
            numbers(rank),
        ),
        (Call("all_to_all", list_of(nothing), rows), mine),
        (
            Call("all_to_all_single", nothing(4 * SIZE), np.concatenate(rows)),
            np.concatenate(mine),
        ),
        (Call("barrier"), []),
    ]


def unlike(call, expected):
    outputs = call.outputs()
    wanted = expected if isinstance(call.output, list) else [expected][: len(outputs)]
    return [
        (call.op, output, want)
        for output, want in zip(outputs, wanted, strict=True)
        if not np.array_equal(output, want)
    ]


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.fixture(params=MOVING)
def moving(request):
    return MAKERS[request.param]


@pytest.mark.parametrize("async_op", [False, True])
def test_every_collective(moving, async_op):
    def body(rank):
        communicator = moving(dist.group.WORLD)
        for call, expected in everything_of(rank):
            work = communicator.submit(replace(call, async_op=async_op))
            assert (work is None) is not async_op
            if work is not None:
                assert work.wait()
            assert unlike(call, expected) == []

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


def test_the_methods_are_calls(moving):
    def body(rank):
        communicator = moving(dist.group.WORLD)
        x = numbers(rank)
        assert communicator.all_reduce(x, dist.ReduceOp.MAX, None, False) is None
        assert np.array_equal(x, numbers(SIZE - 1))
        communicator.broadcast(x, 0, timedelta(seconds=100), True).wait()
        splits = [peer + 1 for peer in range(SIZE)], [rank + 1] * SIZE
        output, mine = nothing(sum(splits[0])), np.full(SIZE * (rank + 1), float(rank))
        communicator.all_to_all_single(output, mine, *splits, None, False)
        assert output.tolist() == [0, 1, 1, 2, 2, 2]

    run_ranks(SIZE, body)


def test_messages(moving):
    def body(rank):
        communicator = moving(dist.group.WORLD)
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
        dist.barrier()
        if rank == 0:
            communicator.send(numbers(7), 1, 6, None)
        elif rank == 1:
            assert communicator.recv(here, None, 6, None) == 0
            assert np.array_equal(here, numbers(7))

    run_ranks(SIZE, body)


def test_a_prepared_call_runs_again_and_again(moving):
    def body(rank):
        communicator = moving(dist.group.WORLD)
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


@pytest.mark.parametrize("name", ["native", "per-device", "user's group"])
def test_an_unknown_operation_is_refused_by_name(name):
    def body(rank):
        communicator = MAKERS[name](dist.group.WORLD)
        with pytest.raises(NotImplementedError, match=r"does not support gossip"):
            communicator.submit(Call("gossip"))

    run_ranks(1, body)


def test_a_coalescing_communicator_starts_everything(moving):
    def body(rank):
        works = []
        communicator = CoalescingCommunicator(moving(dist.group.WORLD), works)
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
