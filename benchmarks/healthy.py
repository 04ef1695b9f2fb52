"""Jobs that are well, asked at random moments: is nobody blamed?

    python benchmarks/healthy.py [--runs N] [--seed N] [--may-be-slow]

Each run forks 2 to 8 ranks of one job on this host. The seed draws what they do:
collectives in several groups, waited for at once or later, messages, objects, groups
that come and go, pauses of single ranks, errors that the program deals with. While they
run, and when they have done everything, the records of all ranks are asked for, as
`allhands debug` does. What must hold (exit status 1 otherwise): there is no verdict,
also where the record of one rank is missing, and every rank ends well.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from forked_ranks import Teller, drive, fork, until

import allhands as dist
from allhands.debug.asking import ask
from allhands.debug.verdict import verdict

LIMIT_S = 60.0  # for a job
MOMENTS = 3
STEPS = 60


class Program:
    """What one rank does; all ranks draw the same steps."""

    def __init__(self, rank: int, size: int, seed: str) -> None:
        self.rank, self.size = rank, size
        self.chance = random.Random(seed)
        self.works: list[Any] = []
        members = [ranks for ranks in self._drawn_members() if len(ranks) > 1]
        made = [(ranks, dist.new_group(ranks)) for ranks in members]
        self.groups = [(list(range(size)), None), *made]

    def run(self) -> None:
        for _ in range(STEPS):
            self.chance.choice(DOINGS)(self)
        for work in self.works:
            work.wait()

    def _drawn_members(self) -> list[list[int]]:
        everybody = range(self.size)
        return [
            sorted(self.chance.sample(everybody, self.chance.randint(1, self.size)))
            for _ in range(2)
        ]

    def collective(self) -> None:
        members, group = self.chance.choice(self.groups)
        call = self.chance.choice(COLLECTIVES)
        count = self.chance.choice([1, 1000, 100_000])
        root = self.chance.choice(members)
        is_async = self.chance.random() < 0.3
        if self.rank in members:
            one = np.ones(count, np.float32)
            many = np.ones((len(members), count), np.float32)
            options = {"group": group, "async_op": is_async}
            work = call(one, many, root, options)
            self.works += [work] if is_async else []

    def wait(self) -> None:
        for work in self.works:
            work.wait()
        self.works = []

    def ring(self) -> None:
        sent, got = np.ones(1000), np.empty(1000)
        work = dist.isend(sent, (self.rank + 1) % self.size)
        dist.recv(got, (self.rank - 1) % self.size)
        work.wait()

    def message(self) -> None:
        source, target = self.chance.sample(range(self.size), 2)
        if self.rank == source:
            dist.send(np.ones(200_000), target, tag=3)
        if self.rank == target:
            dist.recv(np.empty(200_000), tag=3)

    def objects(self) -> None:
        dist.all_gather_object([None] * self.size, {"rank": self.rank})

    def pause(self) -> None:
        """One rank computes, or sleeps, while the others go on."""
        who, seconds = self.chance.randrange(self.size), self.chance.random() * 0.04
        if self.rank == who:
            time.sleep(seconds)

    def group(self) -> None:
        group = dist.new_group()
        dist.barrier(group=group)
        dist.destroy_process_group(group)

    def coalesced(self) -> None:
        with dist._coalescing_manager():
            for _ in range(3):
                dist.all_reduce(np.ones(10))

    def mismatch(self) -> None:
        try:
            dist.all_reduce(np.ones(1 + self.rank))
        except dist.CollectiveMismatchError:
            return
        raise AssertionError("arrays of several sizes have been added")

    def late(self) -> None:
        """Look for a message for a moment."""
        source = self.chance.choice([None, *range(self.size)])
        source = None if source == self.rank else source
        try:
            dist.recv(np.empty(1), source, tag=9, timeout=timedelta(milliseconds=5))
        except dist.CollectiveTimeoutError:
            return
        raise AssertionError("what nobody has sent has come")


DOINGS: list[Callable[[Program], None]] = [
    *[Program.collective] * 8,
    *(Program.wait, Program.ring, Program.message, Program.objects, Program.pause),
    *(Program.group, Program.coalesced, Program.mismatch, Program.late),
]
COLLECTIVES: list[Callable[..., Any]] = [
    lambda one, many, root, options: dist.all_reduce(one, **options),
    lambda one, many, root, options: dist.reduce(one, root, **options),
    lambda one, many, root, options: dist.broadcast(one, root, **options),
    lambda one, many, root, options: dist.all_gather(list(many), one, **options),
    lambda one, many, root, options: dist.reduce_scatter(one, list(many), **options),
    lambda one, many, root, options: dist.gather(
        one, list(many) if dist.get_rank() == root else None, root, **options
    ),
    lambda one, many, root, options: dist.all_to_all_single(many, many * 1, **options),
    lambda one, many, root, options: dist.scan(one * 1, one, **options),
    lambda one, many, root, options: dist.barrier(**options),
]


@dataclass(frozen=True)
class Rank(Teller):
    """One process of a run."""

    seed: str
    rank: int
    size: int
    folder: Path

    def run(self) -> None:
        dist.init_process_group(
            store=dist.FileStore(str(self.folder / "store"), self.size),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=LIMIT_S),
        )
        program = Program(self.rank, self.size, self.seed)
        self.tell("ready", True)
        program.run()
        self.tell("done", True)
        until(lambda: (self.folder / "over").exists(), LIMIT_S)
        dist.destroy_process_group()


def play(ranks: Sequence[Rank], chance: random.Random, may_be_slow: bool) -> list[str]:
    """One run; what is wrong with it."""
    pids = [fork(rank) for rank in ranks]
    wrong = []
    try:
        if not until(lambda: all(rank.told("ready") for rank in ranks), LIMIT_S):
            return ["they do not begin"]
        for _ in range(MOMENTS):
            time.sleep(chance.random() * 0.1)
            wrong += blamed(pids, chance, may_be_slow)
        if not until(lambda: all(rank.told("done") for rank in ranks), LIMIT_S):
            return [*wrong, "they do not end"]
        wrong += blamed(pids, chance, may_be_slow)
        (ranks[0].folder / "over").touch()
        wrong += ended_badly(pids, ranks)
        pids = []
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return wrong


def blamed(pids: Sequence[int], chance: random.Random, may_be_slow: bool) -> list[str]:
    """Ask the ranks, and return the verdicts, of which there should be none."""
    answers = ask(pids, LIMIT_S)
    if len(answers.dumps) < len(pids):
        return [f"{len(answers.dumps)} of {len(pids)} answer: {answers.endings}"]
    missing = chance.randrange(len(pids))
    some = [dump for dump in answers.dumps if dump.rank != missing]
    found = [verdict(answers.dumps), verdict(some)]
    told = [one for one in found if one is not None]
    return [one.line for one in told if one.kind != "straggler" or not may_be_slow]


def ended_badly(pids: Sequence[int], ranks: Sequence[Rank]) -> list[str]:
    wrong = []
    for pid, rank in zip(pids, ranks, strict=True):
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        errors = (rank.folder / f"{rank.rank}.stderr").read_text()
        if code or errors:
            wrong.append(f"rank {rank.rank}: exit code {code}: {errors[-2000:]}")
    return wrong


def play_all(given: argparse.Namespace) -> int:
    num_bad = num_asked = 0
    folder = Path(tempfile.mkdtemp())
    for run in range(given.seed, given.seed + given.runs):
        chance = random.Random(run)
        size = chance.choice([2, 3, 4, 8])
        there = folder / str(run)
        there.mkdir()
        ranks = [Rank(str(run), rank, size, there) for rank in range(size)]
        wrong = play(ranks, chance, given.may_be_slow)
        shutil.rmtree(there)
        num_asked += 2 * (MOMENTS + 1)
        num_bad += bool(wrong)
        for line in wrong:
            print(f"BAD: --seed {run} --runs 1 ({size} ranks): {line}", flush=True)
    shutil.rmtree(folder)
    load = f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs"
    print(f"{num_bad} bad of {given.runs} jobs, in {num_asked} verdicts; {load}")
    return 1 if num_bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    help = "on a busy machine: a rank that is called slow may be slow"
    parser.add_argument("--may-be-slow", action="store_true", help=help)
    return drive(lambda: play_all(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
