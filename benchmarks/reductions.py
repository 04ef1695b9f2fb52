"""Reductions of each dtype and operation, beside SUM of the same dtype, on two ranks.

    allhands run -n 2 benchmarks/reductions.py [--bytes N] [--rounds N]

Rounds of an operation and of SUM alternate; the numbers are the least of all_reduce in
microseconds, and how many times as long it takes as SUM. What must hold (exit status 1
otherwise): no operation takes more than 4 times as long, AVG of 64-bit integers and
PRODUCT of complex numbers among them, which no CPU computes in one instruction.
"""

import argparse
import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table

import allhands as dist

MOST = 4
CASES = {
    "int64": ("AVG", "PRODUCT", "MAX", "BXOR"),
    "uint64": ("AVG", "PRODUCT", "MAX", "BXOR"),
    "int32": ("AVG", "PRODUCT"),
    "int8": ("AVG",),
    "float32": ("AVG", "PRODUCT", "MAX"),
    "float64": ("AVG", "PRODUCT", "MAX"),
    "complex64": ("AVG", "PRODUCT"),
    "complex128": ("AVG", "PRODUCT"),
}


def microseconds(array, op, calls=5):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(array, op)
    return (time.perf_counter() - start) * 1e6 / calls


def measure(dtype, name, num_bytes, rounds):
    array = np.ones(num_bytes // np.dtype(dtype).itemsize, dtype)
    times = {name: [], "SUM": []}
    for _ in range(rounds):
        for op, seen in times.items():
            array[:] = 1
            seen.append(microseconds(array, getattr(dist.ReduceOp, op)))
    return [min(seen) for seen in times.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    dist.init_process_group()
    table = Table("dtype", "operation", "us", "SUM, us", "times as long")
    worst = 0.0
    for dtype, names in CASES.items():
        for name in names:
            taken, of_sum = measure(dtype, name, options.bytes, options.rounds)
            worst = max(worst, taken / of_sum)
            row = (f"{taken:.1f}", f"{of_sum:.1f}", f"{taken / of_sum:.2f}")
            table.add_row(dtype, name, *row)
    if dist.get_rank() == 0:
        Console().print(table)
    # Each rank measures; they fail together or the launcher names the one that does.
    dist.destroy_process_group()
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
