"""Tensors on a GPU: all_reduce on `native` by 2 ranks that share it, and on `nccl`.

    allhands run --nproc-per-node 2 benchmarks/gpus.py
    allhands run --nproc-per-node 1 benchmarks/gpus.py

With 2 ranks or more it compares CUDA tensors on `native` with the copies alone, with
page-locked CPU tensors, and with torch's Gloo: milliseconds until the GPU is done. With
one rank it compares how long a call of `nccl` takes until it is in the stream with
torch's NCCL: microseconds of this thread. Rounds alternate; figures are medians.
"""

import os
import statistics
import sys
import tempfile
import time

import torch
from torch import distributed

import allhands as dist

SIZES = {"8 B": 2, "1 MiB": 1 << 18, "16 MiB": 1 << 22, "64 MiB": 1 << 24}
ROUNDS, WARM_UP, CALLS = 24, 4, 100


def alternate(calls, timed):
    """The median of what `timed` returns for each of the calls."""
    found = {name: [] for name in calls}
    for number in range(ROUNDS):
        for name, call in calls.items():
            took = timed(call)
            if number >= WARM_UP:
                found[name].append(took)
    return {name: statistics.median(times) for name, times in found.items()}


def until_done(call):
    torch.cuda.synchronize()
    dist.barrier()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def until_enqueued(call):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS * 1e6


def by_way_of_the_host(count):
    gpu = torch.ones(count, device="cuda")
    locked = torch.ones(count).pin_memory()

    def copies():
        for target, source in ((locked, gpu), (gpu, locked)):
            target.copy_(source, non_blocking=True)
            torch.cuda.current_stream().synchronize()

    calls = {
        "CUDA tensors": lambda: dist.all_reduce(gpu, dist.ReduceOp.AVG),
        "the copies alone": copies,
        "page-locked CPU tensors": lambda: dist.all_reduce(locked, dist.ReduceOp.AVG),
        "on torch's Gloo": lambda: distributed.all_reduce(
            gpu, distributed.ReduceOp.MAX
        ),
    }
    return alternate(calls, until_done)


def in_the_stream():
    array = torch.ones(2, device="cuda")
    calls = {
        "all_reduce of 8 B": lambda: dist.all_reduce(array),
        "torch's": lambda: distributed.all_reduce(array),
        "with a handle": lambda: dist.all_reduce(array, async_op=True).wait(),
        "torch's with one": lambda: distributed.all_reduce(array, async_op=True).wait(),
    }
    return alternate(calls, until_enqueued)


def begin_torch(backend):
    """Let torch.distributed have the same ranks."""
    names = [f"{tempfile.mkdtemp()}/store" if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names)
    place = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}
    store = distributed.FileStore(names[0], place["world_size"])
    distributed.init_process_group(backend, store=store, **place)


def main():
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU here")
    is_one = os.environ.get("WORLD_SIZE", "1") == "1"
    dist.init_process_group("cpu:native,cuda:nccl" if is_one else "native")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    begin_torch("nccl" if is_one else "gloo")
    if is_one:
        tables = {"us": in_the_stream()}
    else:
        tables = {name: by_way_of_the_host(count) for name, count in SIZES.items()}
    if dist.get_rank() == 0:
        for name, table in tables.items():
            cells = (f"{what} {figure:.3g}" for what, figure in table.items())
            print(f"{name}: {', '.join(cells)}")
    distributed.destroy_process_group()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
