"""All ranks of a job, forked from here: they connect, operate, end, and report times.

    python -m allhands.bench.scale_worker RANKS

The environment says where the ranks meet, as that of any rank does. The program prints
what the ranks have measured on stdout, as a list in JSON. Times of day are those of the
monotonic clock, which all processes of the host share.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from time import perf_counter, process_time
from typing import Any

import numpy as np

import allhands as dist
from allhands.elastic.preloaded import LOADED_LATER

__all__ = ["OPERATIONS", "main"]

OPERATIONS = ("all_reduce", "broadcast", "barrier")
_BLOCK_S = 0.1  # of calls in a row
_FEWEST, _MOST = 3, 2000  # calls in a block


def _be(rank: int) -> dict[str, Any]:
    """Be one rank, and return what it has measured."""
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
    shared = _shared_bytes()
    figures: dict[str, Any] = {}

    def step(name: str, call: Callable[[], object]) -> None:
        before, begin = process_time(), perf_counter()
        call()
        figures[name] = begin, perf_counter(), process_time() - before

    step("init", dist.init_process_group)
    step("first_barrier", dist.barrier)
    figures["segment"] = _shared_bytes() - shared
    array = np.zeros(1)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(array),
        "broadcast": lambda: dist.broadcast(array, 0),
        "barrier": dist.barrier,
    }
    for name in OPERATIONS:
        figures[name] = _time(calls[name])
    figures["pss"] = _pss()
    dist.barrier()
    step("destroy", dist.destroy_process_group)
    return figures


def _time(call: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds per call, measured on a block of calls."""
    call()
    dist.barrier()
    begin = perf_counter()
    for _ in range(_FEWEST):
        call()
    seconds = (perf_counter() - begin) / _FEWEST
    wanted = np.array([min(_MOST, max(_FEWEST, math.ceil(_BLOCK_S / seconds)))])
    dist.broadcast(wanted, 0)
    count = int(wanted[0])
    dist.barrier()
    before, begin = process_time(), perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - begin) / count, (process_time() - before) / count


def _shared_bytes() -> int:
    """Return the bytes of shared memory that this process maps."""
    total = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            place, access, *_ = line.split()
            if access.endswith("s"):
                first, last = (int(end, 16) for end in place.split("-"))
                total += last - first
    return total


def _pss() -> int:
    """Return the bytes of memory of this process, with its part of what is shared."""
    with open("/proc/self/smaps_rollup") as rollup:
        [line] = [line for line in rollup if line.startswith("Pss:")]
    return int(line.split()[1]) << 10


def _forked(rank: int, gate: tuple[int, int], results: int) -> int:
    """Fork a rank; it begins with a byte from `gate`, and exits if `gate` is closed."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.close(gate[1])
        if os.read(gate[0], 1):
            # One write, which is atomic as it is smaller than the pipe's limit for
            # that.
            os.write(results, f"{json.dumps(_be(rank))}\n".encode())
            code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main(ranks: int) -> int:
    """Fork the ranks, let them go, and print what they report."""
    for module in LOADED_LATER["allhands"]:
        import_module(module)
    gc.collect()
    gc.freeze()  # as `allhands run --preload`
    gate = os.pipe()
    reading, writing = os.pipe()
    pids = []
    for rank in range(ranks):
        try:
            pids.append(_forked(rank, gate, writing))
        except OSError as error:
            sys.stderr.write(f"rank {rank} cannot be forked: {error}\n")
            return 1
    os.close(writing)
    os.write(gate[1], bytes(ranks))
    with open(reading) as results:
        rows = [json.loads(line) for line in results]
    failed = 0
    for pid in pids:
        with suppress(ChildProcessError):
            failed += os.waitpid(pid, 0)[1] != 0
    json.dump(rows, sys.stdout)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
