"""What the ranks of a drill do, over and over: each step knows which data is right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import allhands as dist

Step = Callable[[int], None]  # with its number

MIB = 1 << 20


def all_reduce(num_bytes: int) -> Callable[[int, int], Step]:
    def prepare(rank: int, size: int) -> Step:
        # Sums of these are exact.
        base = np.arange(num_bytes // 4, dtype=np.float32) % 1009
        array, right = np.empty_like(base), np.empty_like(base)

        def step(number: int) -> None:
            np.add(base, np.float32(rank + number % 1000), out=array)
            dist.all_reduce(array)
            np.add(base, np.float32(number % 1000), out=right)
            np.multiply(right, np.float32(size), out=right)
            np.add(right, np.float32(size * (size - 1) // 2), out=right)
            assert np.array_equal(array, right), "wrong data"

        return step

    return prepare


def all_reduce_async(rank: int, size: int) -> Step:
    arrays = [np.empty(20_000) for _ in range(4)]

    def step(number: int) -> None:
        for i, array in enumerate(arrays):
            array[:] = rank + number + i
        works = [dist.all_reduce(array, async_op=True) for array in arrays]
        for work in works:
            work.wait()
        for i, array in enumerate(arrays):
            right = size * (number + i) + size * (size - 1) // 2
            assert (array == right).all(), "wrong data"

    return step


def ring(num_bytes: int) -> Callable[[int, int], Step]:
    """Messages to the next rank, from the one before."""

    def prepare(rank: int, size: int) -> Step:
        before, behind = (rank - 1) % size, (rank + 1) % size
        sent, got = np.empty(num_bytes // 8), np.empty(num_bytes // 8)

        def step(number: int) -> None:
            sent[:] = number + rank
            works = [dist.isend(sent, behind), dist.irecv(got, before)]
            for work in works:
                work.wait()
            assert (got == number + before).all(), "wrong data"

        return step

    return prepare


def broadcast(rank: int, size: int) -> Step:
    array = np.empty(MIB // 8)

    def step(number: int) -> None:
        array[:] = number if rank == number % size else -1
        dist.broadcast(array, number % size)
        assert (array == number).all(), "wrong data"

    return step


def all_to_all(rank: int, size: int) -> Step:
    sent, got = np.empty((size, 30_000)), np.empty((size, 30_000))

    def step(number: int) -> None:
        sent[:] = number + rank
        dist.all_to_all_single(got, sent)
        assert (got == number + np.arange(size)[:, None]).all(), "wrong data"

    return step


def all_gather(rank: int, size: int) -> Step:
    sent, got = np.empty(100_000), np.empty((size, 100_000))

    def step(number: int) -> None:
        sent[:] = number + rank
        dist.all_gather_single(got, sent)
        assert (got == number + np.arange(size)[:, None]).all(), "wrong data"

    return step


def barrier(rank: int, size: int) -> Step:
    return lambda number: dist.barrier()


def objects(rank: int, size: int) -> Step:
    def step(number: int) -> None:
        got: list[object] = [None] * size
        dist.all_gather_object(got, (number, rank))
        assert got == [(number, each) for each in range(size)], "wrong data"

    return step


def groups(rank: int, size: int) -> Step:
    """Makes a group of all, uses it and destroys it."""

    def step(number: int) -> None:
        group = dist.new_group(list(range(size)))
        array = np.array([float(number)])
        dist.all_reduce(array, group=group)
        assert array[0] == size * number, "wrong data"
        dist.destroy_process_group(group)

    return step


def mismatch(rank: int, size: int) -> Step:
    """One rank calls something else each time; all of them learn it, and go on."""
    sums = all_reduce(MIB)(rank, size)

    def step(number: int) -> None:
        odd, kind = number % size, number % 3
        array = np.ones(1000 if kind else 200_000)
        try:
            if rank != odd:
                dist.all_reduce(array)
            elif kind == 0:
                dist.all_reduce(array[1:])
            elif kind == 1:
                dist.broadcast(array, odd)
            else:
                dist.barrier()
        except dist.CollectiveMismatchError as error:
            text = str(error)
            for side in (odd, (odd + 1) % size):
                assert f"{side}" in text, text
            assert (array == 1).all(), "written"
        else:
            raise AssertionError("no mismatch was found")
        sums(number)

    return step


WORKS = {
    "all_reduce 8 B": all_reduce(8),
    "all_reduce 1 MiB": all_reduce(MIB),
    "all_reduce 64 MiB": all_reduce(64 * MIB),
    "all_reduce async": all_reduce_async,
    "ring 8 B": ring(8),
    "ring 1 MiB": ring(MIB),
    "broadcast 1 MiB": broadcast,
    "all_to_all": all_to_all,
    "all_gather": all_gather,
    "barrier": barrier,
    "objects": objects,
    "groups": groups,
    "mismatch": mismatch,
}
