"""`allhands debug`: reads the flight records of a job and says what is wrong.

The records are files, or the answers of a running job.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from allhands.backends.printable import printable
from allhands.debug.command_console import CommandConsole
from allhands.debug.pickles import write_pickles
from allhands.debug.sources import add_sources, gather, seconds
from allhands.debug.table import ranks_table, stack_lines, stats_table
from allhands.debug.verdict import LEAST_WAIT, verdict
from allhands.elastic.command_line import CommandLineParser
from allhands.elastic.records import write_records

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if nothing is wrong, 1 if so, 2 without records."""
    given = _parser().parse_args(args)
    try:
        job = gather(given)
        if given.torch:
            write_pickles(job.dumps, given.torch)
        if given.save:
            records = (json.dumps(dump.raw) for dump in job.dumps)
            write_records(given.save, records, job.endings)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"allhands debug: {printable(str(error))}\n")
        return 2
    found = verdict(job.dumps, job.endings, given.least_wait)
    if given.json:
        told = None if found is None else vars(found)
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        nothing = "nothing is wrong, as far as these records go"
        sys.stdout.write(f"{nothing if found is None else found.line}\n")
        # Names come from programs.
        console = CommandConsole(markup=False, emoji=False)
        console.print(ranks_table(job.dumps, job.endings))
        for line in stack_lines(job.dumps, () if found is None else found.ranks):
            console.print(line, soft_wrap=True, highlight=False)
        if given.stats:
            console.print(stats_table({dump.rank: dump for dump in job.dumps}))
    return 0 if found is None else 1


def _parser() -> argparse.ArgumentParser:
    parser = CommandLineParser(
        prog="allhands debug",
        description="Say what is wrong with a job that runs, or whose ranks wrote "
        "flight records (ALLHANDS_DUMPS, dist.debug.dump): in one line, then with a "
        "line per rank.",
        epilog="Exit code: 0 nothing is wrong, 1 something is, 2 there are no records "
        "that can be read.",
    )
    add = parser.add_argument
    add_sources(parser)
    add("--stats", action="store_true", help="also how long the operations took")
    add("--json", action="store_true", help="the verdict alone, for programs")
    add(
        "--least-wait",
        type=seconds,
        default=LEAST_WAIT,
        metavar="SECONDS",
        help="blame nobody for a rank that waits for less (default: %(default)g)",
    )
    add("--save", metavar="FILE", help="write all records there, as one file")
    add(
        "--torch",
        metavar="FOLDER",
        help="write the records there as torch's analyser (torchfrtrace) reads them",
    )
    return parser
