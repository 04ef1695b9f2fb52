"""`allhands debug`: reads the flight records of a job and says what is wrong.

Records are files, or the answers of a job that still runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from allhands.debug.asking import ask, ranks_of
from allhands.debug.job_record import JobRecord, read_job
from allhands.debug.pickles import write_pickles
from allhands.debug.table import ranks_table, stats_table
from allhands.debug.verdict import LEAST_WAIT, verdict
from allhands.elastic.records import write_records

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """The command; 0: nothing is wrong, 1: something is, 2: no record can be read."""
    given = _parser().parse_args(args)
    try:
        job = _gather(given.records, given.wait)
        if given.torch:
            write_pickles(job.dumps, given.torch)
        if given.save:
            records = (json.dumps(dump.raw) for dump in job.dumps)
            write_records(given.save, records, job.endings)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"allhands debug: {error}\n")
        return 2
    found = verdict(job.dumps, job.endings, given.least_wait)
    if given.json:
        told = None if found is None else vars(found)
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        nothing = "nothing is wrong, as far as these records go"
        sys.stdout.write(f"{nothing if found is None else found.line}\n")
        Console().print(ranks_table(job.dumps, job.endings))
        if given.stats:
            Console().print(stats_table({dump.rank: dump for dump in job.dumps}))
    return 0 if found is None else 1


def _gather(records: Sequence[str], wait: float) -> JobRecord:
    """What files have, and what jobs answer."""
    files = [name for name in records if os.path.exists(name)]
    jobs = [name for name in records if name not in files]
    read = read_job(files) if files else JobRecord((), {})
    found = {dump.rank: dump for dump in read.dumps}
    silent: dict[int, str] = {}
    for job in jobs:
        answers = ask(ranks_of(job), wait)
        found.update((dump.rank, dump) for dump in answers.dumps)
        silent.update(answers.endings)
    endings = {rank: why for rank, why in silent.items() if rank not in found}
    endings.update(read.endings)
    return JobRecord([found[rank] for rank in sorted(found)], endings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="allhands debug",
        description="Say what is wrong with a job that runs, or whose ranks wrote "
        "flight records (ALLHANDS_DUMPS, dist.debug.dump): in one line, then with a "
        "line per rank.",
        epilog="Exit code: 0 nothing is wrong, 1 something is, 2 there are no records "
        "that can be read.",
    )
    add = parser.add_argument
    add(
        "records",
        nargs="+",
        metavar="RECORD|PID|JOB",
        help="files of ranks, or folders; of a job that runs on this host its run id, "
        "or, where that is nobody's, the process id of its launcher or of a rank",
    )
    add("--stats", action="store_true", help="also how long the operations took")
    add("--json", action="store_true", help="the verdict alone, for programs")
    add(
        "--least-wait",
        type=_seconds,
        default=LEAST_WAIT,
        metavar="SECONDS",
        help="blame nobody for a rank that waits for less (default: %(default)g)",
    )
    add(
        "--wait",
        type=_seconds,
        default=3.0,
        metavar="SECONDS",
        help="how long a job that runs has to answer (default: %(default)g)",
    )
    add("--save", metavar="FILE", help="write all records there, as one file")
    add(
        "--torch",
        metavar="FOLDER",
        help="write the records there as torch's analyser (torchfrtrace) reads them",
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds
