"""Each collective once: what every rank holds before, and afterwards.

allhands run --nproc-per-node 2 examples/collectives.py
"""

import numpy as np

import allhands as dist


def tour(before):
    """The name of each call and what this rank holds after it; `before` stays."""
    rank, size = dist.get_rank(), dist.get_world_size()

    array = before.copy()
    dist.broadcast(array, src=0)
    yield "broadcast(src=0)", array

    array = before.copy()
    dist.all_reduce(array, op=dist.ReduceOp.SUM)
    yield "all_reduce(SUM)", array

    array = before.copy()
    dist.reduce(array, dst=0, op=dist.ReduceOp.SUM)
    yield "reduce(SUM, dst=0)", array

    arrays = np.zeros((size, size), int)
    dist.all_gather_single(arrays, before)
    yield "all_gather_single", arrays

    # Lists: one array per rank, and only the root of a gather or scatter has one.
    arrays = list(np.zeros((size, size), int)) if rank == 0 else None
    dist.gather(before, arrays, dst=0)
    yield "gather(dst=0)", arrays

    one = np.zeros(1, int)
    dist.scatter(one, np.split(before, size) if rank == 0 else None, src=0)
    yield "scatter(src=0)", one

    one = np.zeros(1, int)
    dist.reduce_scatter_single(one, before)
    yield "reduce_scatter_single", one

    array = np.zeros(size, int)
    dist.all_to_all_single(array, before)
    yield "all_to_all_single", array


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    before = 10 * rank + np.arange(size)
    rows = [("", f"rank {rank}"), ("before", before), *tour(before)]
    mine = [(name, str(np.array(held).tolist())) for name, held in rows]

    everyones = [None] * size if rank == 0 else None
    dist.gather_object(mine, everyones, dst=0)
    if rank == 0:
        width = max(len(held) for rows in everyones for _, held in rows)
        for row in zip(*everyones, strict=True):
            cells = "  ".join(f"{held:{width}}" for _, held in row)
            print(f"{row[0][0]:24}", cells.rstrip())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
