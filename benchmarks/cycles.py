"""Worlds that lose a rank, again and again: does anything stay behind?

    python benchmarks/cycles.py [--cycles N] [--ranks N] [--slack SECONDS]

In each cycle the ranks make a world with groups, and repeat operations until SIGKILL
ends the last rank. The others notice, also in a group that they use for the first time,
shrink the world, use what is left, and leave. A new process takes the place of the
killed one in the next cycle. What must hold (exit status 1 otherwise): each error names
the killed rank and no other, a cycle takes a survivor 2 s at most, and after the last
cycle the survivors have no more descriptors, threads or files than after the first few,
and no more memory but 1 KiB for each cycle and 512 KiB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
from forked_ranks import Teller, drive, fork, until

import allhands as dist

BEGIN_S = 60.0  # for the ranks of a cycle to begin, or to end it
LIMIT_S = 2.0
REST_S = 10.0  # for the thread that hands a group's memory to ranks that come late
WARM = 3  # cycles after which everything is there that stays
SLACK_KIB, SLACK_KIB_EACH = 512, 1
READY = 3  # operations before which the last rank is not killed


@dataclass(frozen=True)
class Rank(Teller):
    """One process; the last rank lives for one cycle, the others for all."""

    rank: int
    size: int
    cycles: range
    folder: Path

    def run(self) -> None:
        for cycle in self.cycles:
            begin = self._begin(cycle)
            late = dist.new_group()
            try:
                self._work(cycle)
            except dist.RankFailedError as error:
                told = error.ranks
            try:
                dist.barrier(group=late)
            except dist.RankFailedError as error:
                told += error.ranks
            self._go_on()
            took = time.monotonic() - begin
            until(lambda: held()["threads"] == 1, REST_S)
            self.tell(f"cycle_{cycle}", {"told": told, "took": took, **held()})

    def _begin(self, cycle: int) -> float:
        until((self.folder / f"go_{cycle}").exists, BEGIN_S)
        begin = time.monotonic()
        dist.init_process_group(
            store=dist.FileStore(str(self.folder / f"store_{cycle}"), self.size),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=BEGIN_S),
        )
        return begin

    def _work(self, cycle: int) -> None:
        everybody, _ = dist.new_group(), dist.new_group([0, 1])
        array, number = np.ones(1000), 0
        while True:
            dist.all_reduce(array)
            dist.all_gather_object([None] * self.size, cycle)
            dist.all_reduce(array, group=everybody, async_op=True).wait()
            number += 1
            if number == READY and self.rank == 0:
                self.tell(f"ready_{cycle}", True)

    def _go_on(self) -> None:
        """Shrink the world, use what is left of it, and leave."""
        dist.shrink_group([self.size - 1])
        total = np.ones(1000)
        dist.all_reduce(total)
        if total[0] != self.size - 1:
            raise AssertionError(f"{total[0]} ranks are left of {self.size}")
        dist.barrier(group=dist.new_group())
        dist.destroy_process_group()


def held() -> dict[str, int]:
    """Return what this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "kib": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
    }


def files() -> set[str]:
    """Return files of this package in the folders that all processes share."""
    folders = map(Path, ("/dev/shm", tempfile.gettempdir()))
    return {
        str(path)
        for folder in folders
        for path in folder.iterdir()
        if "allhands" in path.name
    }


def play(num_cycles: int, size: int, limit: float, folder: Path) -> list[str]:
    """Play all cycles; return what is wrong."""
    survivors = [
        Rank(rank, size, range(num_cycles), folder) for rank in range(size - 1)
    ]
    before, pids, wrong = files(), [fork(rank) for rank in survivors], list[str]()
    for cycle in range(num_cycles):
        if wrong := lose_one(cycle, survivors):
            break
    for pid in pids:
        if wrong:
            os.kill(pid, signal.SIGKILL)
        if os.waitpid(pid, 0)[1] and not wrong:
            wrong.append("a survivor failed")
    wrong += [f"{file} is left" for file in files() - before]
    return wrong or [line for rank in survivors for line in judge(rank, limit)]


def lose_one(cycle: int, survivors: Sequence[Rank]) -> list[str]:
    """Play one cycle; return what is wrong."""
    first = survivors[0]
    last = fork(Rank(first.size - 1, first.size, range(cycle, cycle + 1), first.folder))
    (first.folder / f"go_{cycle}").touch()
    have_begun = until(lambda: first.told(f"ready_{cycle}"), BEGIN_S)
    os.kill(last, signal.SIGKILL)
    os.waitpid(last, 0)
    if not have_begun:
        return [f"cycle {cycle}: they do not begin"]
    if until(lambda: all(each.told(f"cycle_{cycle}") for each in survivors), BEGIN_S):
        return []
    return [f"cycle {cycle}: they do not go on"]


def judge(rank: Rank, limit: float) -> list[str]:
    """Return what is wrong with what a survivor told."""
    told = [rank.told(f"cycle_{cycle}") for cycle in rank.cycles]
    first, last = told[min(WARM, len(told) - 1)], told[-1]
    slowest = max(each["took"] for each in told)
    print(f"rank {rank.rank}: at most {slowest:.2f} s", first, last, sep="\n  ")
    wrong = [f"took {slowest:.2f} s"] if slowest > limit else []
    wrong += [
        f"cycle {cycle} blames {each['told']}"
        for cycle, each in enumerate(told)
        if each["told"] != 2 * [rank.size - 1]
    ]
    allowed = {"kib": SLACK_KIB + SLACK_KIB_EACH * len(told)}
    wrong += [
        f"{last[what]} {what}, before {first[what]}"
        for what in held()
        if last[what] > first[what] + allowed.get(what, 0)
    ]
    return [f"rank {rank.rank}: {text}" for text in wrong]


def play_all(given: argparse.Namespace) -> int:
    folder = Path(tempfile.mkdtemp())
    wrong = play(given.cycles, given.ranks, LIMIT_S + given.slack, folder)
    shutil.rmtree(folder)
    for text in wrong:
        print(f"  BAD {text}")
    print(f"{len(wrong)} bad; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=3)
    help = "seconds to add to the limit, on a busy machine"
    parser.add_argument("--slack", type=float, default=0.0, help=help)
    return drive(lambda: play_all(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
