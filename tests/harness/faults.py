"""Jobs with a planted fault, and what the records of their ranks tell."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
import sys
import time

from allhands.debug.job_record import read_job
from allhands.debug.verdict import Verdict, verdict
from harness.launcher import environment, program
from harness.ranks import LIMIT

PROLOGUE = """\
import os, signal, sys, threading, time
from datetime import timedelta
import numpy as np
import allhands as dist

dist.init_process_group(init_method=os.environ["DIST"])
rank, size = dist.get_rank(), dist.get_world_size()
x = np.ones(4, np.float32)
dist.barrier()
dist.set_timeout(timedelta(seconds=float(os.environ["LIMIT"])))
"""


class Job:
    """A program on some ranks of this host that write their records into a folder."""

    def __init__(
        self, folder: pathlib.Path, body: str, size: int, limit: float = 3.0
    ) -> None:
        self.path = program(folder, PROLOGUE + body)
        self.records = folder / "records"
        self.records.mkdir()
        self.size = size
        self._ranks = [
            subprocess.Popen(
                [sys.executable, self.path],
                env=environment(
                    RANK=str(rank),
                    WORLD_SIZE=str(size),
                    LIMIT=str(limit),
                    ALLHANDS_DUMPS=str(self.records),
                    DIST=f"file://{folder}/store?rank={rank}&world_size={size}",
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def run(self) -> list[int | None]:
        """Until a rank has failed or all have ended; then ask the others, end them.

        Returns exit codes, None for a rank that had to be ended.
        """
        try:
            self._wait(lambda: any(self._codes()) or None not in self._codes())
            # The others may be about to write theirs.
            with contextlib.suppress(AssertionError):
                self._wait(lambda: None not in self._codes(), 1.0)
            codes = self._codes()
            for rank, code in enumerate(codes):
                if code is None:
                    self._ask(rank)
            return codes
        finally:
            for rank in self._ranks:
                rank.kill()
                rank.communicate()

    def _codes(self) -> list[int | None]:
        return [rank.poll() for rank in self._ranks]

    def _ask(self, rank: int) -> None:
        file = self.records / f"rank_{rank}.json"
        before = file.stat().st_mtime_ns if file.exists() else 0
        self._ranks[rank].send_signal(signal.SIGUSR2)
        with contextlib.suppress(AssertionError):  # one that is stopped does not answer
            self._wait(lambda: file.exists() and file.stat().st_mtime_ns != before, 3.0)

    @staticmethod
    def _wait(is_so, limit: float = LIMIT) -> None:
        end = time.monotonic() + limit
        while not is_so():
            assert time.monotonic() < end, "it did not come to that"
            time.sleep(0.01)

    def verdict(self, without: int | None = None, least_wait: float = 5.0):
        """What the records say, perhaps without that of one rank."""
        dumps = [d for d in read_job([self.records]).dumps if d.rank != without]
        return verdict(dumps, least_wait=least_wait)

    def line_of(self, mark: str) -> int:
        """The number of the line with that comment."""
        lines = pathlib.Path(self.path).read_text().splitlines()
        [number] = [i for i, line in enumerate(lines, 1) if f"# {mark}" in line]
        return number


__all__ = ["Job", "Verdict"]
