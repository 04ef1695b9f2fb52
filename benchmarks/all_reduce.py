"""all_reduce of float32 on one host: allhands against Gloo, in one interleaved run.

    make bench

Every rank is a process that belongs to a world of allhands and to one of
torch.distributed with Gloo. A round times each contender in turn, so that all of them
meet the same state of the machine: a barrier, then as many calls in a row as take
`--seconds`. A round's time is that of the slowest rank, per call; the table shows the
median of the rounds. Results are checked in the first and last round. Without torch
only allhands on NumPy arrays is measured.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import version
from importlib.util import find_spec
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import allhands as dist

HAS_GLOO = find_spec("torch") is not None
LIMIT = timedelta(seconds=60)  # for a call; many times what any takes
NUMPY, TORCH, GLOO = "allhands, NumPy", "allhands, torch", "Gloo"


class Contender:
    """One library's all_reduce on an array of one library, seen as NumPy by `view`."""

    def __init__(self, name, num_bytes):
        self.name = name
        self.view = np.zeros(num_bytes // 4, np.float32)
        self.array = self.view
        self.all_reduce = dist.all_reduce
        if name != NUMPY:
            import torch

            self.array = torch.from_numpy(self.view)
        if name == GLOO:
            self.all_reduce = torch.distributed.all_reduce

    def check(self):
        """Fail if the sum over all ranks is wrong anywhere."""
        rank, size = dist.get_rank(), dist.get_world_size()
        ramp = np.arange(self.view.size, dtype=np.float32) % 1024
        self.view[:] = ramp + rank
        self.all_reduce(self.array)
        expected = ramp * size + size * (size - 1) // 2
        assert np.array_equal(self.view, expected), f"{self.name}: wrong sum"
        self.view[:] = 0  # sums of zeros stay what they are, however many follow

    def time(self, num_calls):
        """Seconds per call, on the slowest rank."""
        all_reduce, array = self.all_reduce, self.array
        dist.barrier()
        start = time.perf_counter()
        for _ in range(num_calls):
            all_reduce(array)
        return slowest((time.perf_counter() - start) / num_calls)


def slowest(seconds):
    """The largest of the ranks' `seconds`."""
    worst = np.array([seconds])
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return float(worst[0])


def measure(num_bytes, options):
    """Seconds per call in every round, by contender."""
    names = [NUMPY, TORCH, GLOO] if HAS_GLOO else [NUMPY]
    contenders = [Contender(name, num_bytes) for name in names]
    num_calls = {}
    for contender in contenders:
        contender.check()
        contender.time(3)  # warm-up; then as many calls as fill the time of a round
        estimate = contender.time(10 if num_bytes < 1 << 20 else 1)
        num_calls[contender.name] = max(1, round(options.seconds / estimate))
    rounds = {name: [] for name in names}
    for _ in range(options.rounds):
        for contender in contenders:
            rounds[contender.name].append(contender.time(num_calls[contender.name]))
    for contender in contenders:
        contender.check()
    return rounds


def run_rank(rank, size, folder, options):
    """All measurements of one world, as one of its ranks."""
    world = {"rank": rank, "world_size": size, "timeout": LIMIT}
    dist.init_process_group(store=dist.FileStore(f"{folder}/allhands", size), **world)
    try:
        if HAS_GLOO:
            import torch.distributed

            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            url = f"file://{folder}/gloo"
            torch.distributed.init_process_group("gloo", url, **world)
        return [
            {"ranks": size, "bytes": num_bytes, "seconds": measure(num_bytes, options)}
            for num_bytes in options.sizes
        ]
    finally:
        dist.destroy_process_group()


def run_world(size, options):
    """Start `size` ranks; their measurements."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(size, get_context("spawn")) as pool,
    ):
        jobs = pool.map(run_rank, range(size), *map(repeat, (size, folder, options)))
        rank_0, *_ = jobs  # takes all, so that any rank's exception comes out
        return rank_0


def machine():
    """What the figures depend on, in one line."""
    cpu = platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(x.partition(": ")[2] for x in lines if x.startswith("model name"))
    packages = ["allhands", "numpy"] + ["torch"] * HAS_GLOO
    return ", ".join(
        [
            f"{cpu}, {os.cpu_count()} CPUs",
            f"Linux {platform.release()}",
            f"Python {platform.python_version()}",
            *(f"{name} {version(name)}" for name in packages),
            f"load {os.getloadavg()[0]:.1f}",
        ]
    )


def readable(num_bytes):
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes >= size and num_bytes % size == 0:
            return f"{num_bytes // size} {unit}"
    return f"{num_bytes} B"


def table(results):
    """Median microseconds per call; the ratio takes the slower of our two columns."""
    names = list(results[0]["seconds"])
    shown = Table(title="all_reduce, float32, SUM: median µs per call")
    ratio = ["Gloo /\nallhands"] if HAS_GLOO else []
    headers = [name.replace(", ", "\n") for name in names]
    for column in ("ranks", "size", *headers, *ratio):
        shown.add_column(column, justify="right")
    for result in results:
        medians = [statistics.median(result["seconds"][name]) for name in names]
        cells = [f"{median * 1e6:,.2f}" for median in medians]
        if HAS_GLOO:
            cells.append(f"{medians[-1] / max(medians[:-1]):.1f} x")
        is_last = result["bytes"] == max(other["bytes"] for other in results)
        shown.add_row(
            str(result["ranks"]), readable(result["bytes"]), *cells, end_section=is_last
        )
    return shown


def main(options):
    console = Console()
    machine_line = machine()
    results = []
    for size in options.ranks:
        with console.status(f"{size} ranks"):
            results += run_world(size, options)
    console.print(table(results))
    console.print(machine_line, highlight=False, soft_wrap=True)
    if not HAS_GLOO:
        console.print("Gloo was not measured: torch is not installed")
    if options.json:
        record = {"machine": machine_line, "results": results}
        options.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    sizes = [8, 1 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes, help="bytes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.03, help="per round")
    parser.add_argument("--json", type=Path, help="write every round's time there")
    main(parser.parse_args())
