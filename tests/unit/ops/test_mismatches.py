"""Ranks that call different things: all of them are told, soon, and can go on.

One rank makes another call than the rest. Every rank must raise within a second and
describe both sides, no output may be written, and the next operation must be right.
"""

import time

import numpy as np
import pytest

import allhands as dist
from allhands import ReduceOp
from harness.pace import patient
from harness.ranks import run_ranks

LARGE = 1 << 18


def arrays(count, dtype="f8"):
    """One array per rank."""
    return [np.zeros(count, dtype) for _ in range(dist.get_world_size())]


def at(root, tensors):
    """What a call with a list takes: the list on its root, nothing elsewhere."""
    return tensors if dist.get_rank() == root else None


def uneven(counts):
    """Arrays of these sizes, and this rank's."""
    listed = [np.zeros(n) for n in (counts * 2)[: dist.get_world_size()]]
    return listed, np.zeros(listed[dist.get_rank()].size)


def all_gather_uneven(counts):
    listed, mine = uneven(counts)
    dist.all_gather(listed, mine)


def reduce_scatter_uneven(counts):
    listed, mine = uneven(counts)
    dist.reduce_scatter(mine, listed)


def all_reduce_coalesced(*counts):
    group = dist.group.WORLD
    group.allreduce_coalesced([np.zeros(n) for n in counts]).wait()


def all_gather_coalesced(*counts):
    listed = [[np.zeros(n) for n in counts] for _ in range(dist.get_world_size())]
    dist.group.WORLD.allgather_coalesced(listed, [np.zeros(n) for n in counts]).wait()


CALLS = {
    "all_reduce": lambda: dist.all_reduce(np.zeros(2)),
    "all_reduce of 3": lambda: dist.all_reduce(np.zeros(3)),
    "all_reduce of int32": lambda: dist.all_reduce(np.zeros(2, "i4")),
    "all_reduce MAX": lambda: dist.all_reduce(np.zeros(2), ReduceOp.MAX),
    "large all_reduce": lambda: dist.all_reduce(np.zeros(LARGE)),
    "large all_reduce MIN": lambda: dist.all_reduce(np.zeros(LARGE), ReduceOp.MIN),
    "reduce": lambda: dist.reduce(np.zeros(2), 0),
    "reduce of 3": lambda: dist.reduce(np.zeros(3), 0),
    "reduce of int32": lambda: dist.reduce(np.zeros(2, "i4"), 0),
    "reduce BAND": lambda: dist.reduce(np.zeros(2, "i4"), 0, ReduceOp.BAND),
    "reduce to 1": lambda: dist.reduce(np.zeros(2), 1),
    "large reduce": lambda: dist.reduce(np.zeros(LARGE), 0),
    "large reduce to 1": lambda: dist.reduce(np.zeros(LARGE), 1),
    "reduce_scatter": lambda: dist.reduce_scatter(np.zeros(2), arrays(2)),
    "reduce_scatter of 3": lambda: dist.reduce_scatter(np.zeros(3), arrays(3)),
    "reduce_scatter of int32": lambda: dist.reduce_scatter(
        np.zeros(2, "i4"), arrays(2, "i4")
    ),
    "reduce_scatter AVG": lambda: dist.reduce_scatter(
        np.zeros(2), arrays(2), ReduceOp.AVG
    ),
    "reduce_scatter uneven": lambda: reduce_scatter_uneven([2, 1]),
    "reduce_scatter unlike": lambda: reduce_scatter_uneven([1, 2]),
    "large reduce_scatter": lambda: dist.reduce_scatter(np.zeros(LARGE), arrays(LARGE)),
    "reduce_scatter_single": lambda: dist.reduce_scatter_single(
        np.zeros(2), np.stack(arrays(2))
    ),
    "reduce_scatter_single of 3": lambda: dist.reduce_scatter_single(
        np.zeros(3), np.stack(arrays(3))
    ),
    "broadcast": lambda: dist.broadcast(np.zeros(2), 0),
    "broadcast of 3": lambda: dist.broadcast(np.zeros(3), 0),
    "broadcast of int32": lambda: dist.broadcast(np.zeros(2, "i4"), 0),
    "broadcast from 1": lambda: dist.broadcast(np.zeros(2), 1),
    "large broadcast": lambda: dist.broadcast(np.zeros(LARGE), 0),
    "large broadcast from 1": lambda: dist.broadcast(np.zeros(LARGE), 1),
    "all_gather": lambda: dist.all_gather(arrays(2), np.zeros(2)),
    "all_gather of 3": lambda: dist.all_gather(arrays(3), np.zeros(3)),
    "all_gather of int32": lambda: dist.all_gather(arrays(2, "i4"), np.zeros(2, "i4")),
    "all_gather uneven": lambda: all_gather_uneven([2, 1]),
    "all_gather unlike": lambda: all_gather_uneven([1, 2]),
    "large all_gather": lambda: dist.all_gather(arrays(LARGE), np.zeros(LARGE)),
    "gather": lambda: dist.gather(np.zeros(2), at(0, arrays(2)), 0),
    "gather of 3": lambda: dist.gather(np.zeros(3), at(0, arrays(3)), 0),
    "gather of int32": lambda: dist.gather(
        np.zeros(2, "i4"), at(0, arrays(2, "i4")), 0
    ),
    "gather to 1": lambda: dist.gather(np.zeros(2), at(1, arrays(2)), 1),
    "large gather": lambda: dist.gather(np.zeros(LARGE), at(0, arrays(LARGE)), 0),
    "scatter": lambda: dist.scatter(np.zeros(2), at(0, arrays(2)), 0),
    "scatter of 3": lambda: dist.scatter(np.zeros(3), at(0, arrays(3)), 0),
    "scatter of int32": lambda: dist.scatter(
        np.zeros(2, "i4"), at(0, arrays(2, "i4")), 0
    ),
    "scatter from 1": lambda: dist.scatter(np.zeros(2), at(1, arrays(2)), 1),
    "large scatter": lambda: dist.scatter(np.zeros(LARGE), at(0, arrays(LARGE)), 0),
    "all_to_all": lambda: dist.all_to_all(arrays(2), arrays(2)),
    "all_to_all of int32": lambda: dist.all_to_all(arrays(2, "i4"), arrays(2, "i4")),
    "large all_to_all": lambda: dist.all_to_all(arrays(LARGE), arrays(LARGE)),
    "gather_single": lambda: dist.gather_single(
        np.zeros(2), at(0, np.stack(arrays(2))), 0
    ),
    "gather_single of 3": lambda: dist.gather_single(
        np.zeros(3), at(0, np.stack(arrays(3))), 0
    ),
    "scan": lambda: dist.scan(np.zeros(2), np.zeros(2)),
    "scan of 3": lambda: dist.scan(np.zeros(3), np.zeros(3)),
    "scan MAX": lambda: dist.scan(np.zeros(2), np.zeros(2), ReduceOp.MAX),
    "large scan": lambda: dist.scan(np.zeros(LARGE), np.zeros(LARGE)),
    "exscan": lambda: dist.exscan(np.zeros(2), np.zeros(2)),
    "all_reduce_coalesced": lambda: all_reduce_coalesced(2, 3),
    "all_reduce_coalesced of 3": lambda: all_reduce_coalesced(2, 3, 1),
    "all_reduce_coalesced unlike": lambda: all_reduce_coalesced(3, 2),
    "all_reduce_coalesced of none": lambda: all_reduce_coalesced(),
    "all_gather_coalesced": lambda: all_gather_coalesced(2, 3),
    "all_gather_coalesced of 1": lambda: all_gather_coalesced(5),
    "all_gather_coalesced of none": lambda: all_gather_coalesced(),
    "barrier": lambda: dist.barrier(),
}

# (what all but the last rank call, what the last one calls, its part of the message)
UNLIKE = [
    ("all_reduce", "all_reduce of 3", "count 3"),
    ("all_reduce", "all_reduce of int32", "int32"),
    ("all_reduce", "all_reduce MAX", "MAX"),
    ("all_reduce", "barrier", "barrier()"),
    ("all_reduce", "large all_reduce", f"count {LARGE}"),
    ("large all_reduce", "all_reduce", "count 2"),
    ("large all_reduce", "large all_reduce MIN", "MIN"),
    ("large all_reduce", "large broadcast from 1", "root 1"),
    ("reduce", "reduce of 3", "count 3"),
    ("gather_single", "gather_single of 3", "count 3"),
    ("scan", "scan of 3", "count 3"),
    ("scan", "scan MAX", "MAX"),
    ("scan", "exscan", "exscan("),
    ("scan", "large scan", f"count {LARGE}"),
    ("large scan", "barrier", "barrier()"),
    ("all_reduce_coalesced", "all_reduce_coalesced of 3", "in a list of 3"),
    ("all_reduce_coalesced", "all_reduce_coalesced unlike", "of different sizes"),
    ("all_reduce_coalesced", "all_reduce_coalesced of none", "in a list of 0"),
    ("all_reduce_coalesced of none", "all_reduce", "count 2, SUM"),
    ("all_reduce_coalesced", "all_gather_coalesced", "all_gather_coalesced"),
    ("all_gather_coalesced", "all_gather_coalesced of 1", "in a list of 1"),
    ("all_gather_coalesced of none", "all_gather_coalesced", "in a list of 2"),
    ("reduce", "reduce of int32", "int32"),
    ("reduce of int32", "reduce BAND", "BAND"),
    ("reduce", "reduce to 1", "root 1"),
    ("reduce", "all_reduce", "all_reduce("),
    ("large reduce", "large reduce to 1", "root 1"),
    ("reduce", "large reduce", f"count {LARGE}"),
    ("reduce_scatter", "reduce_scatter of 3", "count 3"),
    ("reduce_scatter", "reduce_scatter of int32", "int32"),
    ("reduce_scatter", "reduce_scatter AVG", "AVG"),
    ("reduce_scatter", "reduce_scatter uneven", "in uneven shares"),
    ("reduce_scatter", "all_gather", "all_gather("),
    ("large reduce_scatter", "reduce_scatter", "count 2"),
    ("reduce_scatter_single", "reduce_scatter_single of 3", "count 3"),
    ("broadcast", "broadcast of 3", "count 3"),
    ("broadcast", "broadcast of int32", "int32"),
    ("broadcast", "broadcast from 1", "root 1"),
    ("broadcast", "large broadcast", f"count {LARGE}"),
    ("broadcast", "scatter", "scatter("),
    ("large broadcast", "large broadcast from 1", "root 1"),
    ("all_gather", "all_gather of 3", "count 3"),
    ("all_gather", "all_gather of int32", "int32"),
    ("all_gather", "all_gather uneven", "in uneven shares"),
    ("all_gather", "gather", "gather("),
    ("large all_gather", "all_gather", "count 2"),
    ("gather", "gather of 3", "count 3"),
    ("gather", "gather of int32", "int32"),
    ("gather", "gather to 1", "root 1"),
    ("large gather", "gather", "count 2"),
    ("scatter", "scatter of 3", "count 3"),
    ("scatter", "scatter of int32", "int32"),
    ("scatter", "scatter from 1", "root 1"),
    ("large scatter", "scatter", "count 2"),
    ("all_to_all", "all_to_all of int32", "int32"),
    ("all_to_all", "all_reduce", "all_reduce("),
    ("large all_to_all", "barrier", "barrier()"),
    ("barrier", "large all_gather", "all_gather("),
]


def raised_by(call):
    """The mismatch that `call` raises, which must come within a second."""
    start = time.monotonic()
    with pytest.raises(dist.CollectiveMismatchError) as caught:
        call()
    assert time.monotonic() - start < patient(1, start)
    return caught.value


def check_next(size, rank):
    """Hold that the group is in order."""
    array = np.full(1000, rank)
    dist.all_reduce(array)
    assert array.tolist() == [size * (size - 1) // 2] * 1000


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("usual", "odd", "part"), UNLIKE)
def test_one_rank_calls_something_else(size, usual, odd, part):
    last = size - 1

    def body(rank):
        for _ in range(2):
            error = raised_by(CALLS[odd if rank == last else usual])
            text = str(error)
            assert part in text
            assert f"rank {last}" in text
            name = usual.removeprefix("large ").split()[0].removesuffix("_single")
            assert f"{name}(" in text
            if size > 2:
                assert error.ranks == ([last] if rank != last else list(range(last)))
            check_next(size, rank)

    run_ranks(size, body)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("rows", [1, 1 << 16])
def test_split_sizes_that_do_not_fit_are_named_on_every_rank(size, rows):
    last = size - 1

    def body(rank):
        output = np.full(size * rows, 7.0)
        sent = [rows] * size
        if rank == last:  # sends rank 0 two rows too many and itself as many less
            sent[0], sent[last] = rows + 2, max(0, rows - 2)
        text = str(
            raised_by(
                lambda: dist.all_to_all_single(
                    output, np.zeros(sum(sent)), [rows] * size, sent
                )
            )
        )
        assert (
            f"rank {last} sends {rows + 2} elements to rank 0, which expects {rows}"
        ) in text
        assert output.tolist() == [7.0] * len(output)  # nothing was written
        check_next(size, rank)

    run_ranks(size, body)


@pytest.mark.parametrize("size", [2, 4])
def test_uneven_lists_that_are_unlike_are_a_mismatch(size):
    def body(rank):
        for name in ("all_gather", "reduce_scatter"):
            which = "unlike" if rank == size - 1 else "uneven"
            text = str(raised_by(CALLS[f"{name} {which}"]))
            assert f"{name}(float64, count 2 in uneven shares" in text
            check_next(size, rank)

    run_ranks(size, body)


def test_an_asynchronous_mismatch_is_raised_by_wait():
    def body(rank):
        works = [
            dist.reduce(np.zeros(2 + rank), 0, async_op=True),
            dist.all_reduce(np.zeros(2), async_op=True),
        ]
        raised_by(works[0].wait)
        works[1].wait()
        check_next(2, rank)

    run_ranks(2, body)
