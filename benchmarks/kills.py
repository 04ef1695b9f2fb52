"""Ranks killed or stopped at random moments: who is told what, and how soon?

    python benchmarks/kills.py [--runs N] [--seed N] [--stop] [--only TEXT]

Each run forks the ranks of one job on this host, that repeat one operation, and sends
SIGKILL to one of them at a moment that the seed chooses. What must hold (exit status 1
otherwise): every other rank raises within 1 s, the error names the killed rank and no
other, and no signal ends the others. With `--stop` it sends SIGSTOP instead, to ranks
that wait for 3 s at most: the others raise after 3.0 to 3.5 s, and the error names the
stopped rank and no other, its last call, and where that was. Where a rank waits for it
through another one, which cannot tell what it waits for itself, the error's `ranks` may
have that one (in messages), and its text also the stopped one. A store does not know
who is to set a value, so nobody is stopped there.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
from forked_ranks import Teller, drive, fork, until

import allhands as dist
from allhands.debug import explanation

BEGIN_S = 600.0  # for a job to begin; many times what any takes
END_S = 20.0  # for a survivor to end
LIMIT_S = 1.0
STOP_LIMITS_S = 3.0, 3.5
SIZES = {"4 B": 1, "16 KiB": 1 << 12, "1 MiB": 1 << 18}  # in float32
RANKS = (2, 4, 8)

Step = Callable[[int], object]


def collective(call: Callable[[np.ndarray, np.ndarray], object]):
    """What takes an array of the size, and one with that for each rank."""

    def prepare(rank: int, size: int, count: int) -> Step:
        one, many = np.ones(count, np.float32), np.ones((size, count), np.float32)
        return lambda number: call(one, many)

    return prepare


def ring(rank: int, size: int, count: int) -> Step:
    """Messages around a ring."""
    sent, got = np.ones(count, np.float32), np.ones(count, np.float32)
    behind, before = (rank + 1) % size, (rank - 1) % size

    def step(number: int) -> None:
        if rank % 2:
            dist.recv(got, before)
            dist.send(sent, behind)
        else:
            dist.send(sent, behind)
            dist.recv(got, before)

    return step


def star(rank: int, size: int, count: int) -> Step:
    """Messages of every rank to every other."""
    sent, got = np.ones(count, np.float32), np.ones((size, count), np.float32)
    others = [other for other in range(size) if other != rank]

    def step(number: int) -> None:
        works = [dist.irecv(got[other], other) for other in others]
        works += [dist.isend(sent, other) for other in others]
        for work in works:
            work.wait()

    return step


def groups(rank: int, size: int, count: int) -> Step:
    def step(number: int) -> None:
        group = dist.new_group(list(range(size)))
        dist.barrier(group=group)
        dist.destroy_process_group(group)

    return step


def keys(rank: int, size: int, count: int) -> Step:
    """Values of a store that every rank sets for all others."""
    value, store = bytes(4 * count), dist.distributed_c10d._get_default_store()

    def step(number: int) -> None:
        store.set(f"{number}/{rank}", value)
        for other in range(size):
            store.get(f"{number}/{other}")
        store.delete_key(f"{number - 2}/{rank}")

    return step


OPERATIONS = {
    "all_reduce": collective(lambda one, many: dist.all_reduce(one)),
    "reduce": collective(lambda one, many: dist.reduce(one, 0)),
    "broadcast": collective(lambda one, many: dist.broadcast(one, 0)),
    "all_gather": collective(lambda one, many: dist.all_gather(list(many), one)),
    "gather": collective(
        lambda one, many: dist.gather(
            one, list(many) if dist.get_rank() == 0 else None, 0
        )
    ),
    "scatter": collective(
        lambda one, many: dist.scatter(
            one, list(many) if dist.get_rank() == 0 else None, 0
        )
    ),
    "reduce_scatter": collective(
        lambda one, many: dist.reduce_scatter(one, list(many))
    ),
    "all_to_all": collective(lambda one, many: dist.all_to_all_single(many, many * 1)),
    "scan": collective(lambda one, many: dist.scan(many[0], one)),
    "barrier": collective(lambda one, many: dist.barrier()),
    "async all_reduce": collective(
        lambda one, many: dist.all_reduce(one, async_op=True).wait()
    ),
    "all_gather_object": collective(
        lambda one, many: dist.all_gather_object([None] * len(many), one)
    ),
    "send/recv in a ring": ring,
    "isend/irecv of all": star,
    "store.get": keys,
    "new_group": groups,
}
WITHOUT_SIZE = ("barrier", "new_group")
MESSAGES = ("send/recv in a ring", "isend/irecv of all")
"""A message fails alone. So who waits for a rank that was told is told of both."""
LAST_CALL = re.compile(r", (in|after) \w+( #\d+)? on group '\w+' \(\S*kills\.py:\d+\)")


@dataclass(frozen=True)
class Rank(Teller):
    """One process of a run; it tells the driver by files in its folder."""

    operation: str
    count: int
    rank: int
    size: int
    is_to_be_stopped: bool
    folder: Path
    slack: float

    def run(self) -> None:
        explanation._LIMIT += self.slack / 4  # a rank asks for twice as long at most
        limit = timedelta(seconds=STOP_LIMITS_S[0] if self.is_to_be_stopped else 60)
        dist.init_process_group(
            store=dist.FileStore(str(self.folder / "store"), self.size),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=BEGIN_S),
        )
        dist.barrier()
        dist.set_timeout(limit)
        step = OPERATIONS[self.operation](self.rank, self.size, self.count)
        for number in range(3):
            step(number)
        self.tell("ready", True)
        number = 3
        try:
            while True:
                begin = time.monotonic()
                step(number)
                number += 1
        except Exception as error:
            end = time.monotonic()
            ranks = getattr(error, "ranks", None)
            self.tell("told", [begin, end, type(error).__name__, ranks, str(error)])
            if self.operation in MESSAGES:
                raise  # that tells who waits for this rank
        # An end would be another loss to notice.
        until(lambda: (self.folder / "over").exists(), END_S + self.slack)


def play(ranks: Sequence[Rank], chance: random.Random) -> list[tuple[float, str]]:
    """One run; of each survivor how long it took, and what is wrong with it, or ""."""
    folder, is_stop, slack = ranks[0].folder, ranks[0].is_to_be_stopped, ranks[0].slack
    pids = [fork(rank) for rank in ranks]
    victim = chance.randrange(len(ranks))
    others = [rank for rank in ranks if rank.rank != victim]
    codes: dict[int, int] = {}
    try:
        if not have_told(ranks, "ready", BEGIN_S, has_failed=has_child_ended):
            return [(0.0, f"they do not begin: {errors_of(ranks)}")]
        time.sleep(chance.random() * 0.03)
        at = time.monotonic()
        os.kill(pids[victim], signal.SIGSTOP if is_stop else signal.SIGKILL)
        have_told(others, "told", 8.0 + slack)
        (folder / "over").touch()
        until(
            lambda: all(has_ended(pids, rank.rank, codes) for rank in others),
            10.0 + slack,
        )
    finally:
        for rank in ranks:
            if not has_ended(pids, rank.rank, codes):
                os.kill(pids[rank.rank], signal.SIGKILL)
                os.waitpid(pids[rank.rank], 0)
    return [judge(rank, victim, at, codes.get(rank.rank)) for rank in others]


def have_told(
    ranks: Sequence[Rank],
    what: str,
    limit: float,
    has_failed: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait until all ranks have told it; return False after `limit` or a failure.

    It looks at one rank at a time: there may be many, which need the CPUs.
    """
    silent = [*ranks]

    def is_over() -> bool:
        while silent and silent[-1].told(what) is not None:
            silent.pop()
        return not silent or has_failed()

    until(is_over, limit)
    return not silent


def has_child_ended() -> bool:
    return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def has_ended(pids: Sequence[int], rank: int, codes: dict[int, int]) -> bool:
    if rank not in codes:
        pid, status = os.waitpid(pids[rank], os.WNOHANG)
        if pid:
            codes[rank] = os.waitstatus_to_exitcode(status)
    return rank in codes


def errors_of(ranks: Sequence[Rank]) -> str:
    files = (rank.folder / f"{rank.rank}.stderr" for rank in ranks)
    return " ".join(file.read_text() for file in files if file.exists())


def judge(rank: Rank, victim: int, at: float, code: int | None) -> tuple[float, str]:
    """Return the seconds until the rank was told, and what is wrong, or ""."""
    told = rank.told("told")
    if told is None:
        return 0.0, f"rank {rank.rank} was told nothing {errors_of([rank])}"
    begin, end, kind, named, text = told
    is_message = rank.operation in MESSAGES
    if rank.is_to_be_stopped:
        took = end - max(begin, at)
        wrong = wrong_with_stop(text, victim, took, rank.slack)
        is_told = is_message  # it names its peer, which may wait in a message, too
    else:
        took = end - at
        wrong = [f"took {took:.2f} s"] if took > LIMIT_S + rank.slack else []
        is_told = is_message and re.search(rf"rank {victim}\b", text) is not None
    if named != [victim] and not is_told:
        wrong.append(f"blames {named}, it was {victim}")
    if code != int(is_message):
        wrong.append(f"exit code {code}")
    what = f"rank {rank.rank}: {', '.join(wrong)}: {kind}: {text}" if wrong else ""
    return took, what


def wrong_with_stop(text: str, victim: int, took: float, slack: float) -> list[str]:
    """Return what is wrong with an error's text, or its time, because of a stop."""
    wrong = []
    if not STOP_LIMITS_S[0] - 0.1 - slack <= took <= STOP_LIMITS_S[1] + slack:
        wrong.append(f"took {took:.2f} s")
    reason = re.search(rf"\brank {victim}: stopped by SIGSTOP([^;]*)", text)
    if reason is None:
        wrong.append("no reason")
    elif not LAST_CALL.search(reason[1]):
        wrong.append("no last call, or no line of it")
    return wrong


def play_all(given: argparse.Namespace) -> int:
    num_bad = 0
    folder = Path(tempfile.mkdtemp())
    for operation in OPERATIONS:
        if given.only not in operation or (given.stop and operation == "store.get"):
            continue
        sizes = {"": 1} if operation in WITHOUT_SIZE else SIZES
        for size in given.ranks:
            for name, count in sizes.items():
                took: list[float] = []
                bad: list[str] = []
                for run in range(given.runs):
                    seed = f"{operation} {size} {name} {given.seed + run}"
                    there = folder / seed.replace("/", "_")
                    there.mkdir()
                    ranks = [
                        Rank(
                            operation, count, rank, size, given.stop, there, given.slack
                        )
                        for rank in range(size)
                    ]
                    found = play(ranks, random.Random(seed))
                    took += [seconds for seconds, _ in found]
                    bad += [wrong for _, wrong in found if wrong]
                    shutil.rmtree(there)
                num_bad += len(bad)
                middle = statistics.median(took)
                print(
                    f"{operation:20} {size} ranks {name:7} {len(took) - len(bad)} of "
                    f"{len(took)} good, after {middle:.3f} s (at most {max(took):.3f})",
                    flush=True,
                )
                for wrong in bad[: given.most]:
                    print(f"  BAD {wrong}", flush=True)
    shutil.rmtree(folder)
    print(f"{num_bad} bad; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")
    return 1 if num_bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    parser.add_argument("--only", default="", help="operations with this in the name")
    parser.add_argument("--most", type=int, default=3, help="told of what went wrong")
    help = "seconds to add to all limits, on a busy machine"
    parser.add_argument("--slack", type=float, default=0.0, help=help)
    parser.add_argument("--stop", action="store_true", help="SIGSTOP, not SIGKILL")
    return drive(lambda: play_all(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
