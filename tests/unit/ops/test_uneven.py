"""gatherv and scatterv against NumPy; ranks are threads."""

import array

import numpy as np
import pytest

import allhands as dist
from harness.arrays import DTYPES
from harness.ranks import outcomes, run_ranks


def cases(size):
    """For each root counts, some of them 0, and a dtype."""
    rng = np.random.default_rng(size)
    for root in range(size):
        counts = rng.integers(0, 6, size) * rng.choice([1, 1, 3000])
        yield root, counts.tolist(), DTYPES[int(rng.integers(len(DTYPES)))]


def part(rank, count, dtype):
    return (np.arange(count) % 2 + rank % 2).astype(dtype)


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_views_of_one_array(size, async_op):
    def body(rank):
        for root, counts, dtype in cases(size):
            parts = [part(r, n, dtype) for r, n in enumerate(counts)]
            wide = np.zeros((2, sum(counts)), dtype)  # a row of it, then a column
            for whole in (wide[0], wide.reshape(-1, 2)[:, 1]):
                views = np.split(whole, np.cumsum(counts)[:-1])
                mine = views if rank == root else None
                work = dist.gatherv(parts[rank], mine, root, async_op=async_op)
                assert (work is None) is not async_op
                if async_op:
                    work.wait()
                assert rank != root or np.array_equal(whole, np.concatenate(parts))
                here = np.zeros(2 * counts[rank], dtype)[::2]
                work = dist.scatterv(here, mine, root, async_op=async_op)
                if async_op:
                    work.wait()
                assert np.array_equal(here, parts[rank])

    run_ranks(size, body)


def test_a_size_on_which_two_ranks_differ_names_both():
    def body(rank):
        lists = [np.zeros(1), np.zeros(2), np.zeros(4)] if rank == 0 else None
        for call in (dist.gatherv, dist.scatterv):
            call(np.zeros([1, 2, 3][rank]), lists, 0)

    for error in outcomes(3, body):
        assert isinstance(error, dist.CollectiveMismatchError)
        assert "rank 2" in str(error)


def test_exported_memory_and_tensors():
    def body(rank):
        here = [bytearray(2), bytearray(1)] if rank == 0 else None
        dist.gatherv(b"ab" if rank == 0 else b"c", here)
        numbers = array.array("i", [rank])
        dist.scatterv(numbers, [array.array("i", [7])] * 2 if rank == 0 else None)
        assert numbers[0] == 7
        return here

    assert run_ranks(2, body) == [[b"ab", b"c"], None]


@pytest.mark.parametrize("op", ["gatherv", "scatterv"])
def test_lists_that_are_wrong(op):
    call = getattr(dist, op)

    def body(rank):
        x = np.ones(1)
        with pytest.raises(ValueError, match=f"{op}: .* must be None on ranks other"):
            call(x, [x, x], 1 - rank)
        with pytest.raises(ValueError, match=f"{op}: .* is missing on the root"):
            call(x, None, rank)
        with pytest.raises(RuntimeError, match="has 1 arrays, expected 2"):
            call(x, [x], rank)
        with pytest.raises(TypeError, match="of type list"):
            call(x, (x, x), rank)
        for root in range(2):
            with pytest.raises(TypeError, match="of type list"):
                call(x, np.ones(2), root)
        with pytest.raises(RuntimeError, match=r"root rank: 2; it must be in \[0, 2\)"):
            call(x, None, 2)
        with pytest.warns(UserWarning, match=f"Running {op} .* does not belong"):
            assert call(x, group=dist.GroupMember.NON_GROUP_MEMBER) is None
        dist.barrier()

    run_ranks(2, body)


def test_of_a_group_by_its_own_ranks():
    def body(rank):
        odd = dist.new_group([1, 3])
        if rank % 2 == 0:
            return None
        here = [np.zeros(1), np.zeros(3)] if rank == 3 else None
        dist.gatherv(
            np.full(rank, rank),
            [n.astype(int) for n in here] if here else None,
            group=odd,
            group_dst=1,
        )
        mine = np.zeros(rank)
        dist.scatterv(mine, here, 3, odd)
        return mine.tolist()

    assert run_ranks(4, body) == [None, [0], None, [0, 0, 0]]
