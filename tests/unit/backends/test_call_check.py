"""ALLHANDS_CHECK=calls: ranks compare their calls before another library gets them."""

import numpy as np
import pytest

import allhands as dist
from allhands.backends.call_check import CallCheckedCommunicator
from allhands.backends.front import FrontCommunicator
from allhands.backends.native import NativeCommunicator
from harness.ranks import run_ranks

SIZE = 3


class Library(FrontCommunicator):
    """Keeps the names of the operations that reach it."""

    def __init__(self, options, _):
        super().__init__(NativeCommunicator(options))
        self.reached = []

    def submit(self, call):
        self.reached.append(call.op)
        return self.communicator.submit(call)


@pytest.fixture(autouse=True)
def checking(registered, monkeypatch):
    registered("library", Library, extended_api=True, devices="cpu")
    monkeypatch.setenv("ALLHANDS_CHECK", "calls")


def arrays(counts):
    return [np.ones(count) for count in counts]


def on_root(rank, counts):
    return arrays(counts) if rank == 0 else None


SAME = {
    "all_reduce": lambda r, g: dist.all_reduce(np.ones(2), group=g),
    "all_gather": lambda r, g: dist.all_gather(arrays(range(3)), np.ones(r), group=g),
    "gatherv": lambda r, g: dist.gatherv(np.ones(r), on_root(r, range(3)), group=g),
    "scatter": lambda r, g: dist.scatter(np.ones(2), on_root(r, [2] * 3), group=g),
    "barrier": lambda r, g: dist.barrier(g),
    "split": lambda r, g: dist.all_to_all_single(
        np.ones(3 * r), np.ones(3), [r] * 3, [0, 1, 2], group=g
    ),
    "asynchronous": lambda r, g: dist.scan(
        np.ones(2), np.ones(2), group=g, async_op=True
    ).wait(),
}
DIFFERENT = {
    "dtype": lambda r, g: dist.all_reduce(np.ones(2, "f4" if r else "f8"), group=g),
    "size": lambda r, g: dist.all_reduce(np.ones(1 + r), group=g),
    "op": lambda r, g: dist.all_reduce(
        np.ones(1), dist.ReduceOp.MAX if r else dist.ReduceOp.SUM, group=g
    ),
    "root": lambda r, g: dist.broadcast(np.ones(1), src=min(r, 1), group=g),
    "operation": lambda r, g: SAME["barrier" if r else "all_reduce"](r, g),
    "sent": lambda r, g: dist.gatherv(np.ones(r), on_root(r, [0, 1, 3]), group=g),
    "uneven": lambda r, g: dist.all_gather(
        arrays([0, 1 if r else 5, 2]), np.ones(r), group=g
    ),
    "asynchronous": lambda r, g: dist.all_reduce(
        np.ones(1 + r), group=g, async_op=True
    ),
}


def test_the_same_calls_reach_the_library():
    def body(rank):
        group = dist.new_group(backend="library")
        for call in SAME.values():
            call(rank, group)
        checked = group.communicator
        assert isinstance(checked, CallCheckedCommunicator)
        return len(checked.communicator.reached)

    assert run_ranks(SIZE, body) == [len(SAME)] * SIZE


def test_different_calls_raise_on_every_rank_and_do_not_reach_it():
    def body(rank):
        group = dist.new_group(backend="library")
        texts = {}
        for name, call in DIFFERENT.items():
            with pytest.raises(dist.CollectiveMismatchError) as raised:
                call(rank, group)
            texts[name] = str(raised.value)
            assert raised.value.ranks
        SAME["all_reduce"](rank, group)
        assert group.communicator.communicator.reached == ["all_reduce"]
        return texts

    first = run_ranks(SIZE, body)[0]
    assert first["dtype"] == (
        "the ranks of group '1' called different things as operation #1: "
        "rank 0 (this process): all_reduce(float64, count 2, SUM); "
        "rank 1: all_reduce(float32, count 2, SUM); "
        "rank 2: all_reduce(float32, count 2, SUM)"
    )
    assert "rank 1: broadcast(float64, count 1, root 1)" in first["root"]
    assert "from ranks [0, 1, 3]" in first["sent"]


def test_the_native_engine_compares_by_itself():
    kinds = run_ranks(2, lambda rank: type(dist.group.WORLD.communicator))
    assert kinds == [NativeCommunicator] * 2


@pytest.mark.parametrize(
    ("backend", "kinds"),
    [
        ("cpu:native,cuda:library", [NativeCommunicator, Library]),
        ("cpu:library,cuda:native", [CallCheckedCommunicator, NativeCommunicator]),
    ],
)
def test_only_what_serves_the_cpu_is_compared_in_a_mixed_group(backend, kinds):
    def body(_):
        carrier = dist.new_group(backend=backend).communicator
        return [type(carrier.serving(device)) for device in ("cpu", "cuda")]

    assert run_ranks(2, body) == [kinds] * 2
