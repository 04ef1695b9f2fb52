"""What this machine can do at best: copy memory on one core, and wake up a process.

The processes on the other end are bare Python programs of a few lines, so the times
include what Python adds to a system call or to a look at memory, some 0.1 µs.
"""

from __future__ import annotations

import mmap
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np

__all__ = ["copy_bandwidth", "hand_over_time", "measure_limits", "wake_up_time"]

_LEAST = 16 << 10  # bytes; a copy of fewer measures the call more than the copy
_BLOCK_S = 0.005
_BLOCKS = 7
_TURNS = 500
# this many take seconds; a process that is alive answers in far fewer
_LOOKS = 100_000_000

_ECHO = """
import os
while os.read(0, 1):
    os.write(1, b".")
"""
_SPIN = """
import mmap, sys
turn = memoryview(mmap.mmap(int(sys.argv[1]), 8)).cast("q")
for mine in range(1, 2 * int(sys.argv[2]), 2):
    while turn[0] != mine:
        pass
    turn[0] = mine + 1
"""


def measure_limits(sizes: Sequence[int]) -> dict[str, Any]:
    """Measure all limits, in seconds and in bytes per second by size.

    `hand_over` is None if there is only one CPU.
    """
    cpus = sorted(os.sched_getaffinity(0))[:2]
    return {
        "copy": {size: copy_bandwidth(size) for size in sizes if size >= _LEAST},
        "wake_up": wake_up_time(cpus),
        "hand_over": hand_over_time(cpus) if len(cpus) == 2 else None,
    }


def copy_bandwidth(size: int) -> float:
    """Return the bytes per second that one core copies between two arrays, in a row.

    Each byte counts once, though it is read and written. The result is that of the best
    of several blocks.
    """
    # Written, so that each page has its own memory: pages of zeros share one. The two
    # begin at the same place of a page: a copy to the next 31 bytes takes 10 to 20
    # times as long on AMD's CPUs, and where arrays of their own begin is chance.
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.ones(2 * pages, np.uint8)
    source, target = memory[:size], memory[pages : pages + size]
    calls = 1
    while (seconds := _seconds(calls, np.copyto, target, source)) < _BLOCK_S:
        calls *= 2
    times = [_seconds(calls, np.copyto, target, source) for _ in range(_BLOCKS)]
    return size * calls / min(seconds, *times)


def _seconds(calls: int, function: Callable[..., Any], *args: Any) -> float:
    start = perf_counter()
    for _ in repeat(None, calls):
        function(*args)
    return perf_counter() - start


def wake_up_time(cpus: Sequence[int]) -> float:
    """Return the seconds until a process that sleeps in a read is woken by a write.

    The result is half the median round trip of a byte through two pipes, with the
    processes on the first and the last of `cpus`.

    Raises:
        RuntimeError: the other process ended.
    """
    with _program(cpus, _ECHO) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        there, back = process.stdin.fileno(), process.stdout.fileno()

        def turn() -> None:
            try:
                os.write(there, b".")
                answer = os.read(back, 1)
            except BrokenPipeError:
                answer = b""
            if not answer:
                raise RuntimeError("the process on the other end of the pipes ended")

        turn()
        return statistics.median(_seconds(1, turn) for _ in range(_TURNS)) / 2


def hand_over_time(cpus: Sequence[int]) -> float:
    """Return the seconds until a process that polls shared memory sees a new value.

    The result is half the median round trip, with the processes on the first and the
    last of `cpus`, which must be two.

    Raises:
        RuntimeError: the other process did not answer within seconds.
    """
    memory = os.memfd_create("allhands_bench")
    try:
        os.ftruncate(memory, 8)
        turn = memoryview(mmap.mmap(memory, 8)).cast("q")
        with _program(cpus, _SPIN, str(memory), str(_TURNS), pass_fds=[memory]):
            times = [_hand_over(turn, k) for k in range(1, 2 * _TURNS, 2)]
    finally:
        os.close(memory)
    return statistics.median(times) / 2


def _hand_over(turn: memoryview[int], mine: int) -> float:
    start = perf_counter()
    turn[0] = mine
    for _ in repeat(None, _LOOKS):
        if turn[0] != mine:
            return perf_counter() - start
    raise RuntimeError("the process on the other end of shared memory did not answer")


@contextmanager
def _program(
    cpus: Sequence[int], text: str, *args: str, pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program on the last CPU, while this process is kept on the first."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", text, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=pass_fds,
        bufsize=0,
    )
    before = os.sched_getaffinity(0)
    with process:
        try:
            os.sched_setaffinity(process.pid, cpus[-1:])
            os.sched_setaffinity(0, cpus[:1])
            yield process
        finally:
            os.sched_setaffinity(0, before)
            process.kill()
