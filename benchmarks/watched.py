"""By how much does `allhands top` slow down the ranks that it shows?

    python benchmarks/watched.py [--ranks N] [--pairs N] [--seconds S]

Forked ranks repeat an all_reduce of 8 bytes. `allhands top` shows them in a terminal of
its own, and is stopped and continued by turns. So a time without it is compared with
the one beside it, whatever else the machine does. Prints the median and the mean of the
losses, and how much CPU time top itself takes.
"""

from __future__ import annotations

import argparse
import fcntl
import mmap
import os
import pty
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from forked_ranks import Teller, drive, fork, until

import allhands as dist

BEGIN_S = 30.0
A_TABLE = 300  # more characters than top writes before its first table
SETTLE_S = 0.1  # after top was stopped or continued


@dataclass(frozen=True)
class Rank(Teller):
    """One process of the job; rank 0 counts what they have done."""

    rank: int
    size: int
    folder: Path
    count: np.ndarray

    def run(self) -> None:
        store = dist.FileStore(str(self.folder / "store"), self.size)
        dist.init_process_group(store=store, rank=self.rank, world_size=self.size)
        dist.barrier()
        self.tell("ready", True)
        array, done = np.ones(2, np.float32), 0
        while True:
            dist.all_reduce(array)
            done += 1
            if self.rank == 0:
                self.count[0] = done


def top_of(pid: int, arguments: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start top in a terminal of 40 lines; return it and the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    command = [sys.executable, "-m", "allhands", "top", str(pid), *arguments]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    top = subprocess.Popen(command, **streams, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    return top, ours


class Reader(threading.Thread):
    """Reads a terminal, so that who writes there goes on."""

    def __init__(self, terminal: int) -> None:
        super().__init__(daemon=True)
        self._terminal = terminal
        self.num_read = 0

    def run(self) -> None:
        with suppress(OSError):  # its end
            while read := os.read(self._terminal, 1 << 16):
                self.num_read += len(read)


def cpu_seconds(pid: int) -> float:
    told = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(told[0]) / 1e9


def rate(count: np.ndarray, seconds: float) -> float:
    """Return operations per second from now on."""
    begin, before = time.monotonic(), int(count[0])
    time.sleep(seconds)
    return (int(count[0]) - before) / (time.monotonic() - begin)


def play(given: argparse.Namespace) -> int:
    count = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.int64)
    folder, top = Path(tempfile.mkdtemp()), None
    ranks = [Rank(rank, given.ranks, folder, count) for rank in range(given.ranks)]
    pids = [fork(rank) for rank in ranks]  # outside the block, which a rank would leave
    try:
        if not until(lambda: all(rank.told("ready") for rank in ranks), BEGIN_S):
            print("the ranks do not begin")
            return 1
        top, terminal = top_of(pids[0], given.top)
        reader = Reader(terminal)
        reader.start()
        if not until(lambda: reader.num_read > A_TABLE, BEGIN_S):
            print("top shows nothing")
            return 1
        compare(top, count, given)
    finally:
        for pid in [*pids, *([top.pid] if top else [])]:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
        shutil.rmtree(folder)
    return 0


def cost_of(pid: int, seconds: float) -> str:
    """Return what a process takes of a CPU while nobody stops it."""
    before, begin = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    share = (cpu_seconds(pid) - before) / (time.monotonic() - begin)
    return f"{share * 1e3:.1f} ms of a CPU per second"


def compare(
    top: subprocess.Popen[bytes], count: np.ndarray, given: argparse.Namespace
) -> None:
    cost = cost_of(top.pid, given.alone)
    losses: list[float] = []
    rates: list[float] = []
    for number in range(given.pairs):
        pair = {}
        for is_watched in (True, False) if number % 2 else (False, True):
            top.send_signal(signal.SIGCONT if is_watched else signal.SIGSTOP)
            time.sleep(SETTLE_S)
            pair[is_watched] = rate(count, given.seconds)
        losses.append(1 - pair[True] / pair[False])
        rates.append(pair[False])
    assert top.poll() is None, "top has ended"
    spread = statistics.quantiles(losses, n=4)
    print(
        f"{given.ranks} ranks, {statistics.median(rates):.0f} operations/s; with top "
        f"slower by {statistics.median(losses):.1%} (median of {len(losses)} pairs; "
        f"quartiles {spread[0]:.1%} to {spread[2]:.1%}; mean "
        f"{statistics.mean(losses):.1%}); top takes {cost}; load "
        f"{os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1.0)
    help = "seconds in which top is not stopped, to see what it takes"
    parser.add_argument("--alone", type=float, default=12.0, help=help)
    parser.add_argument("top", nargs="*", help="arguments for top, after --")
    given = parser.parse_args()
    return drive(lambda: play(given))


if __name__ == "__main__":
    sys.exit(main())
