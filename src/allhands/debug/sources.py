"""The command-line arguments that name a job: files of records, or running jobs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from allhands.debug.asking import ask, ranks_of
from allhands.debug.job_record import JobRecord, read_job

__all__ = ["add_sources", "gather", "seconds"]


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `gather` reads."""
    parser.add_argument(
        "records",
        nargs="+",
        metavar="RECORD|PID|JOB",
        help="files of ranks, or folders; of a job that runs on this host its run id, "
        "or, where that is nobody's, the process id of its launcher or of a rank",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        default=3.0,
        metavar="SECONDS",
        help="how long a job that runs has to answer (default: %(default)g)",
    )


def gather(given: argparse.Namespace) -> JobRecord:
    """Return the records in files, and the answers of jobs.

    Raises:
        ValueError: a file is not a record, no process answers, or there are no records.
        OSError: a file cannot be read.
    """
    files = [name for name in given.records if os.path.exists(name)]
    jobs = [name for name in given.records if name not in files]
    read = read_job(files) if files else JobRecord((), {})
    found = {dump.rank: dump for dump in read.dumps}
    silent: Mapping[int, str] = {}
    if jobs:  # all at once: where a rank does not answer, each takes the whole time
        answers = ask({pid for job in jobs for pid in ranks_of(job)}, given.wait)
        found.update((dump.rank, dump) for dump in answers.dumps)
        silent = answers.endings
    endings = {rank: why for rank, why in silent.items() if rank not in found}
    endings.update(read.endings)
    return JobRecord([found[rank] for rank in sorted(found)], endings)


def seconds(text: str) -> float:
    """Parse `text` as a number of seconds."""
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return number
