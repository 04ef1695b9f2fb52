"""What does a call of this package take over the same call of the library below it?

    mpiexec -n 2 python benchmarks/layer.py mpi [--arrays numpy|torch] [--bytes N]
    allhands run -n 2 benchmarks/layer.py gloo [--arrays numpy|torch] [--bytes N]

An all_reduce of this package on backend mpi beside mpi4py's `Allreduce`, or on backend
gloo beside torch.distributed on Gloo. Both take the same array. Blocks of calls take
turns, and the last two blocks are compared, so what else the machine does counts alike.
Prints the quartiles of each, and the median of the differences and of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import allhands as dist

WARM_UP_S = 0.2
Call = Callable[[], Any]


def below_mpi(array: Any) -> Call:
    """Return mpi4py's call, over a communicator of its own."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    return lambda: comm.Allreduce(MPI.IN_PLACE, array)


def below_gloo(array: Any) -> Call:
    """Return torch's call, in a world of torch's over this one's store."""
    import torch
    import torch.distributed

    from allhands.store.lent_store import LentStore

    below_gloo.store = LentStore(dist.distributed_c10d._get_default_store())
    torch.distributed.init_process_group(
        "gloo",
        store=below_gloo.store,
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
    )
    tensor = torch.as_tensor(array)
    return lambda: torch.distributed.all_reduce(tensor)


BELOW = {"mpi": below_mpi, "gloo": below_gloo}


def made(kind: str, num_bytes: int) -> Any:
    """Return an array of float32 zeros."""
    array = np.zeros(max(num_bytes // 4, 1), np.float32)
    if kind == "numpy":
        return array
    import torch

    torch.set_num_threads(1)
    return torch.from_numpy(array)


def took_us(call: Call, number: int) -> float:
    """Return the time of one of `number` calls, after all ranks have come."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - begin) / number * 1e6


def calls_within(call: Call, seconds: float) -> int:
    """Return how many calls take about this time: the same number on all ranks."""
    number, begin = np.ones(1), time.perf_counter()
    for _ in range(20):
        call()
    number *= 20 * seconds / (time.perf_counter() - begin)
    dist.all_reduce(number, dist.ReduceOp.MAX)
    return max(int(number[0]), 1)


def measure(given: argparse.Namespace) -> None:
    array = made(given.arrays, given.bytes)
    calls = {
        "ours": lambda: dist.all_reduce(array),
        "below": BELOW[given.backend](array),
    }
    for call in calls.values():
        took_us(call, calls_within(call, WARM_UP_S))
    number = calls_within(calls["below"], given.block)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for pair in range(given.pairs):
        for name in sorted(calls, reverse=bool(pair % 2)):
            times[name].append(took_us(calls[name], number))
    if dist.get_rank() == 0:
        show(times, given)


def show(times: dict[str, list[float]], given: argparse.Namespace) -> None:
    pairs = list(zip(times["ours"], times["below"], strict=True))
    over = statistics.median(ours - below for ours, below in pairs)
    ratio = statistics.median(ours / below for ours, below in pairs)
    for name, each in times.items():
        low, middle, high = statistics.quantiles(each, n=4)
        print(f"{name:6} {low:.2f} {middle:.2f} {high:.2f} us")
    print(
        f"all_reduce of {given.bytes:,} B of {given.arrays} on {given.backend}, "
        f"{dist.get_world_size()} ranks: {over:+.2f} us, x {ratio:.3f} (medians of "
        f"{len(pairs)} pairs)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backend", choices=BELOW)
    parser.add_argument("--arrays", choices=["numpy", "torch"], default="numpy")
    parser.add_argument("--bytes", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=100)
    help = "seconds of the calls of a block"
    parser.add_argument("--block", type=float, default=0.01, help=help)
    given = parser.parse_args()
    dist.init_process_group(given.backend)
    measure(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
