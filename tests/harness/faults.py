"""Jobs with a planted fault, or with none, and what the records of their ranks tell."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from allhands.debug.dumps import Failure
from allhands.debug.hearsay import CYCLE, reason_in
from allhands.debug.job_record import JobRecord, read_job
from allhands.debug.verdict import Verdict, verdict
from harness.launcher import environment, launch, program

PROLOGUE = """\
import ctypes, itertools, os, signal, sys, threading, time
from datetime import timedelta
import numpy as np
import allhands as dist

dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
x = np.ones(4, np.float32)
dist.barrier()
dist.set_timeout(timedelta(seconds=float(os.environ["LIMIT"])))
"""


class Job(NamedTuple):
    """A job that has ended."""

    path: str
    """The program."""
    exit_code: int
    stderr: str
    record: JobRecord

    @property
    def last_lines(self) -> str:
        """What the launcher says of the records."""
        [line] = [
            line
            for line in self.stderr.splitlines()
            if line.startswith("allhands run: by the flight records, ")
        ]
        return line

    def verdict(self, without: int | None = None) -> Verdict | None:
        """What the records say, perhaps without that of one rank, and of its end."""
        endings = self.record.endings.items()
        return verdict(
            [dump for dump in self.record.dumps if dump.rank != without],
            {rank: how for rank, how in endings if rank != without},
        )

    def failures(self, without: int) -> list[Failure]:
        """Those of the ranks but one; the launcher may ask before a rank has failed."""
        others = [dump for dump in self.record.dumps if dump.rank != without]
        return [dump.failure for dump in others if dump.failure is not None]

    def errors_tell(self, kind: str, guilty: Sequence[int], without: int) -> bool:
        """Whether the ranks but one have seen it; on a busy machine not all have."""
        told = [reason_in(failure.message) for failure in self.failures(without)]
        if kind == "cycle":
            return any(reason.startswith(CYCLE) for reason in told)
        return kind != "stuck" or any(f"rank {guilty[0]}" in reason for reason in told)

    def place_of(self, mark: str) -> str:
        """The line with that comment."""
        lines = pathlib.Path(self.path).read_text().splitlines()
        [number] = [i for i, line in enumerate(lines, 1) if f"# {mark}" in line]
        return f"{self.path}:{number}"


def failed_job(folder: pathlib.Path, body: str, size: int, limit: float = 3.0) -> Job:
    """Of `size` ranks with that program, whose operations wait for `limit` seconds.

    The launcher collects the records.
    """
    path = program(folder, PROLOGUE + body)
    records = folder / "records"
    options = (f"--nproc-per-node={size}", f"--dumps={records}", "--shutdown-timeout=1")
    done = launch(*options, path, env=environment(LIMIT=str(limit)))
    return Job(path, done.returncode, done.stderr, read_job([records]))


def good_job(folder: pathlib.Path, body: str, size: int) -> Job:
    """One that ends well, and whose ranks write their records by themselves."""
    path = program(folder, PROLOGUE + body)
    records = folder / "records"
    records.mkdir()
    variables = environment(LIMIT="60", ALLHANDS_DUMPS=str(records))
    done = launch(f"--nproc-per-node={size}", path, env=variables)
    assert done.returncode == 0, done.stderr
    return Job(path, done.returncode, done.stderr, read_job([records]))
