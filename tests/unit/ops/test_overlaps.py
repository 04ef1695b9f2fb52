"""Inputs that lie where the same call writes: as with inputs of their own."""

import numpy as np
import pytest

import allhands as dist
from harness.ranks import run_ranks

SIZES = [8, 3000, 200_000]  # elements of one share: on every way
RANKS = 3


def _mine(rank, count):
    return (np.arange(count) % 1009 + 10_000 * rank).astype(np.float64)


@pytest.mark.parametrize("share", SIZES)
@pytest.mark.parametrize("at", ["own place", "half", "another's place", "between"])
def test_all_gather(share, at):
    def body(rank):
        begin = {
            "own place": rank * share,
            "half": share // 2,
            "another's place": (rank + 1) % RANKS * share,
            "between": rank * share + (share // 3 if rank + 1 < RANKS else -1),
        }[at]
        memory = np.empty(RANKS * share)
        memory[begin : begin + share] = _mine(rank, share)
        dist.all_gather_single(memory, memory[begin : begin + share])
        return memory

    expected = np.concatenate([_mine(rank, share) for rank in range(RANKS)])
    for result in run_ranks(RANKS, body):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("share", SIZES)
@pytest.mark.parametrize("begin", [0.0, 0.5, 1.0, 1.75])
def test_reduce_scatter(share, begin):
    def body(rank):
        memory = _mine(rank, RANKS * share)
        first = int(begin * share)
        output = memory[first : first + share]
        dist.reduce_scatter_single(output, memory)
        return output

    whole = sum(_mine(rank, RANKS * share) for rank in range(RANKS))
    for rank, result in enumerate(run_ranks(RANKS, body)):
        np.testing.assert_array_equal(result, whole[rank * share : (rank + 1) * share])


@pytest.mark.parametrize("share", SIZES)
@pytest.mark.parametrize("shift", [0, 1, -1, 0.5])
def test_all_to_all(share, shift):
    def body(rank):
        margin = share
        memory = np.empty(RANKS * share + 2 * margin)
        begin = margin + int(shift * share if abs(shift) < 1 else shift)
        inputs = memory[begin : begin + RANKS * share]
        inputs[:] = _mine(rank, RANKS * share)
        output = memory[margin : margin + RANKS * share]
        dist.all_to_all_single(output, inputs)
        return output

    for rank, result in enumerate(run_ranks(RANKS, body)):
        parts = [_mine(peer, RANKS * share) for peer in range(RANKS)]
        expected = [part[rank * share : (rank + 1) * share] for part in parts]
        np.testing.assert_array_equal(result, np.concatenate(expected))


@pytest.mark.parametrize("share", SIZES)
def test_all_to_all_of_reversed_shares(share):
    def body(rank):
        memory = _mine(rank, RANKS * share)
        shares = np.split(memory, RANKS)
        dist.all_to_all(shares[::-1], shares)
        return shares[::-1]

    for rank, result in enumerate(run_ranks(RANKS, body)):
        for peer, got in enumerate(result):
            part = _mine(peer, RANKS * share)[rank * share : (rank + 1) * share]
            np.testing.assert_array_equal(got, part)


@pytest.mark.parametrize("share", SIZES)
def test_gather_and_scatter(share):
    root = 1

    def body(rank):
        memory = np.empty(RANKS * share)
        mine = memory[share // 2 : share // 2 + share]
        mine[:] = _mine(rank, share)
        is_root = rank == root
        dist.gather(mine, np.split(memory, RANKS) if is_root else None, dst=root)
        gathered = memory.copy()
        inputs = np.split(memory, RANKS) if is_root else None
        output = memory[share // 2 : share // 2 + share]
        dist.scatter(output, inputs, src=root)
        return gathered if is_root else None, output

    results = run_ranks(RANKS, body)
    expected = np.concatenate([_mine(rank, share) for rank in range(RANKS)])
    np.testing.assert_array_equal(results[root][0], expected)
    for rank, (_, output) in enumerate(results):
        np.testing.assert_array_equal(output, _mine(rank, share))


def test_interleaved_arrays():
    def body(rank):
        memory = np.zeros(2 * RANKS * 50_000)
        memory[1 : 2 * 50_000 : 2] = _mine(rank, 50_000)
        dist.all_gather_single(memory[::2], memory[1 : 2 * 50_000 : 2])
        return memory[::2], memory[1 : 2 * 50_000 : 2]

    expected = np.concatenate([_mine(rank, 50_000) for rank in range(RANKS)])
    for rank, (gathered, mine) in enumerate(run_ranks(RANKS, body)):
        np.testing.assert_array_equal(gathered, expected)
        np.testing.assert_array_equal(mine, _mine(rank, 50_000))
