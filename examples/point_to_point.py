"""Messages from rank to rank: blocking, immediate, and all at once.

    allhands run --nproc-per-node 2 examples/point_to_point.py

The sender says where to, the receiver where from; the receiver brings the memory.
With more ranks, every second one sends to the next; the last of an odd number has
nobody to send to.
"""

import numpy as np

import allhands as dist


def is_sender(rank, size):
    """Whether a rank sends to the next one: 0 to 1, 2 to 3, ..."""
    return rank % 2 == 0 and rank + 1 < size


def blocking(rank, size):
    """`recv` returns when the array is filled."""
    array = np.zeros(3)
    if is_sender(rank, size):
        array += 1
        dist.send(array, dst=rank + 1)
    elif rank % 2 == 1:
        dist.recv(array, src=rank - 1)
    return array


def immediate(rank, size):
    """The same, with time to compute: leave `array` alone until `wait` has returned."""
    array, work = np.zeros(3), None
    if is_sender(rank, size):
        array += 2
        work = dist.isend(array, dst=rank + 1)
    elif rank % 2 == 1:
        work = dist.irecv(array, src=rank - 1)
    other = sum(range(1000))  # runs meanwhile
    if work:
        work.wait()
    return array, other


def around(rank, size):
    """Everybody to the right and from the left.

    If all began with `send`, all would wait for a `recv`, as soon as arrays are large.
    """
    mine, theirs = np.array([10 * rank]), np.zeros(1, int)
    if size == 1:
        return mine
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
    print("blocking: ", blocking(rank, size))
    print("immediate:", *immediate(rank, size))
    print("around:   ", around(rank, size))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
