"""Measuring one cell on all peers, which take turns in every round.

A machine's speed changes with time, and with turns all peers meet the same changes. In
a round each peer has a block: some warm-up calls, a barrier, then as many calls in a
row as fill the minimum time. Calls timed alone follow, for the 99th percentile. While a
peer runs, the ranks of all others sleep. The order of the peers rotates with the
rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allhands.bench.cells import Cell
from allhands.bench.job import Job
from allhands.bench.results import Result, percentile

__all__ = ["Effort", "measure"]

_WARM_UP = 4  # a block's calls per call of warm-up: woken ranks must spread first
_SAMPLES = 200  # calls timed alone in a round, if the block has as many


@dataclass(frozen=True)
class Effort:
    """How long a cell is measured; `min_time` is the seconds per block."""

    rounds: int
    min_time: float


def measure(
    cell: Cell, jobs: Sequence[Job], effort: Effort, tell: Callable[[Job], None]
) -> list[Result]:
    """Return the results of all jobs; `tell` is called before each block.

    Raises:
        JobError: a rank failed, or a result was wrong.
    """
    results = {job: Result(cell, job.peer) for job in jobs}
    for job, result in results.items():
        tell(job)
        result.absent = job.ask("prepare", cell)[0]
        if not result.absent:
            result.calls = _calibrate(job, effort.min_time)
    present = [job for job in jobs if not results[job].absent]
    samples: dict[Job, list[float]] = {job: [] for job in present}
    for turn in range(effort.rounds):
        first = turn % max(1, len(present))
        for job in present[first:] + present[:first]:
            tell(job)
            samples[job] += _round(job, results[job])
    for job in present:
        tell(job)
        job.ask("check")
        job.ask("drop")
        results[job].p99 = percentile(samples[job], 99)
        results[job].num_samples = len(samples[job])
    return [results[job] for job in jobs]


def _calibrate(job: Job, min_time: float) -> int:
    """Return how many calls take `min_time` on the slowest rank; warm up the ranks."""
    calls = 1
    while True:
        seconds: float = max(job.ask("block", 1, calls))
        if seconds >= min_time / 4:
            return max(1, math.ceil(calls * min_time / seconds))
        calls *= 4


def _round(job: Job, result: Result) -> list[float]:
    """Measure a block, and return the times of calls timed alone."""
    calls, operations = result.calls, result.cell.num_operations
    seconds = job.ask("block", math.ceil(calls / _WARM_UP), calls)
    result.blocks.append(max(seconds) / calls / operations)
    samples = job.ask("each", min(calls, _SAMPLES))
    return [max(call) / operations for call in zip(*samples, strict=True)]
