"""Messages from rank to rank: blocking, immediate, and all at once.

    allhands run --nproc-per-node 2 examples/point_to_point.py

The sender says where to, the receiver where from; the receiver brings the memory.
"""

import numpy as np

import allhands as dist


def blocking(rank):
    """Rank 0 to rank 1. `recv` returns when the array is filled."""
    array = np.zeros(3)
    if rank == 0:
        array += 1
        dist.send(array, dst=1)
    elif rank == 1:
        dist.recv(array, src=0)
    return array


def immediate(rank):
    """The same, with time to compute: leave `array` alone until `wait` has returned."""
    array, work = np.zeros(3), None
    if rank == 0:
        array += 2
        work = dist.isend(array, dst=1)
    elif rank == 1:
        work = dist.irecv(array, src=0)
    other = sum(range(1000))  # runs meanwhile
    if work:
        work.wait()
    return array, other


def around(rank, size):
    """Everybody to the right and from the left.

    If all began with `send`, all would wait for a `recv`, as soon as arrays are large.
    """
    mine, theirs = np.array([10 * rank]), np.zeros(1, int)
    operations = [
        dist.P2POp(dist.isend, mine, (rank + 1) % size),
        dist.P2POp(dist.irecv, theirs, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return theirs


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    print("blocking: ", blocking(rank))
    print("immediate:", *immediate(rank))
    print("around:   ", around(rank, size))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
