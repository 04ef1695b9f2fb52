"""`allhands trace`: writes the operations of a job as a timeline of its ranks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from allhands import settings
from allhands.backends.printable import printable
from allhands.debug.dumps import Dump
from allhands.debug.ended_collectives import clocks_of
from allhands.debug.job_record import JobRecord
from allhands.debug.record import write
from allhands.debug.sources import add_sources, gather
from allhands.debug.trace import trace
from allhands.debug.trace_log import logs_in, read_logs
from allhands.elastic.command_line import CommandLineParser

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if the trace is written, 2 if it cannot be."""
    given = _parser().parse_args(args)
    try:
        job = _gather(given)
        ahead = clocks_of(job.dumps)
        told = trace(job.dumps, job.endings, ahead)
        write(told, given.output)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"allhands trace: {printable(str(error))}\n")
        return 2
    # The trace itself may be on stdout.
    said = sys.stdout if os.path.isfile(given.output) else sys.stderr
    said.write(f"{_summary(job.dumps, given.output)}\n")
    for host, nanoseconds in ahead.items():
        if nanoseconds:
            said.write(
                f"the clock of {host} is ahead by {nanoseconds / 1e6:.3f} ms, which is "
                f"taken from its times\n"
            )
    return 0


def _gather(given: argparse.Namespace) -> JobRecord:
    """Return the job from the logs of ranks, records and running jobs."""
    logs = [log for name in given.records for log in logs_in(name)]
    given.records = [name for name in given.records if not logs_in(name)]
    dumps, lost, empty = read_logs(logs)
    for path in empty:
        sys.stderr.write(
            f"allhands trace: {path}: left out, as its rank died, or the disk was "
            f"full, before its first line was written\n"
        )
    for rank, number in lost.items():
        sys.stderr.write(
            f"allhands trace: rank {rank} lost {_counted(number, 'operation')}, which "
            f"came faster than they were written; a larger "
            f"{settings.record_length.name} loses fewer\n"
        )
    if not given.records:
        if not dumps:
            raise ValueError("no rank has written anything there")
        return JobRecord(dumps, {})
    job = gather(given)
    return JobRecord([*dumps, *job.dumps], job.endings)


def _summary(dumps: Sequence[Dump], path: str) -> str:
    number = sum(entry.started is not None for dump in dumps for entry in dump.entries)
    return (
        f"{path}: {_counted(len({dump.rank for dump in dumps}), 'rank')}, "
        f"{_counted(number, 'operation')}; open it at https://ui.perfetto.dev"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _parser() -> argparse.ArgumentParser:
    parser = CommandLineParser(
        prog="allhands trace",
        description="Write what the ranks of a job did, and when, as a timeline that "
        "Perfetto (https://ui.perfetto.dev) shows: of a job that runs, of flight "
        "records, or of a folder that was given as ALLHANDS_TRACE.",
        epilog="Exit code: 0 the trace is written, 2 it cannot be.",
    )
    add_sources(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        default="trace.json",
        help="where it goes (default: %(default)s)",
    )
    return parser
