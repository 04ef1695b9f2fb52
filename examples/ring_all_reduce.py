"""An all_reduce of our own, from messages: every rank talks to its neighbours only.

    allhands run --nproc-per-node 2 examples/ring_all_reduce.py

Two ways round the ring of p ranks, on arrays of n bytes:

- `whole` sends each rank's array all the way round: p - 1 steps of n bytes.
- `in_chunks` cuts the array into p chunks. Each chunk goes round once and collects the
  sum, then once more and hands it out: 2 (p - 1) steps of n / p bytes, the least
  possible (Patarasuk and Yuan, 2009).

`dist.all_reduce` needs no messages, since ranks of one host share memory.
"""

import time

import numpy as np

import allhands as dist


def neighbours():
    rank, size = dist.get_rank(), dist.get_world_size()
    return (rank - 1) % size, (rank + 1) % size


def whole(array):
    """The sum of every rank's `array`."""
    left, right = neighbours()
    total, outgoing, incoming = array.copy(), array.copy(), np.empty_like(array)
    for _ in range(dist.get_world_size() - 1):
        request = dist.isend(outgoing, right)
        dist.recv(incoming, left)
        total += incoming
        request.wait()
        outgoing, incoming = incoming, outgoing  # what came in goes on
    return total


def in_chunks(array):
    """The same; after step s this rank has summed s + 2 ranks' chunk rank - s - 1."""
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = neighbours()
    total = array.copy()
    chunks = np.array_split(total, size)  # views, so this sums in `total`
    incoming = np.empty_like(chunks[0])  # array_split makes the first the longest

    for step in range(size - 1):  # reduce-scatter: rank ends with all of chunk rank + 1
        target = chunks[(rank - step - 1) % size]
        request = dist.isend(chunks[(rank - step) % size], right)
        dist.recv(incoming[: len(target)], left)
        target += incoming[: len(target)]
        request.wait()
    for step in range(size - 1):  # all-gather: finished chunks go round
        request = dist.isend(chunks[(rank - step + 1) % size], right)
        dist.recv(chunks[(rank - step) % size], left)
        request.wait()
    return total


def ours(array):
    total = array.copy()
    dist.all_reduce(total)
    return total


def best_of(call, array, rounds=5):
    """The last result and the shortest time, in milliseconds."""
    times = []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        result = call(array)
        times.append(time.perf_counter() - start)
    return result, 1e3 * min(times)


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    array = np.arange(1_000_003) * (rank + 1)  # no multiple of the number of ranks
    expected = np.arange(1_000_003) * (size * (size + 1) // 2)
    for call in (whole, in_chunks, ours):
        result, milliseconds = best_of(call, array)
        right = "right" if np.array_equal(result, expected) else "WRONG"
        if rank == 0:
            print(f"{call.__name__:9} {right}, {milliseconds:.2f} ms")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
