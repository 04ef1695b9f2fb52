"""`allhands debug`: reads the flight records of a job and says what is wrong."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rich.console import Console

from allhands.debug.dumps import read_dumps, read_endings
from allhands.debug.pickles import write_pickles
from allhands.debug.table import ranks_table
from allhands.debug.verdict import LEAST_WAIT, verdict

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """The command; 0: nothing is wrong, 1: something is, 2: no record can be read."""
    given = _parser().parse_args(args)
    try:
        dumps = read_dumps(given.records)
        endings = read_endings(given.records)
        if given.torch:
            write_pickles(dumps, given.torch)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"allhands debug: {error}\n")
        return 2
    found = verdict(dumps, endings, given.least_wait)
    if given.json:
        told = None if found is None else vars(found)
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        nothing = "nothing is wrong, as far as these records go"
        sys.stdout.write(f"{nothing if found is None else found.line}\n")
        Console().print(ranks_table(dumps, endings))
    return 0 if found is None else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="allhands debug",
        description="Say what is wrong with a job whose ranks wrote flight records "
        "(ALLHANDS_DUMPS, dist.debug.dump): in one line, then with a line per rank.",
        epilog="Exit code: 0 nothing is wrong, 1 something is, 2 unreadable records.",
    )
    add = parser.add_argument
    add("records", nargs="+", metavar="RECORD", help="files of ranks, or folders")
    add("--json", action="store_true", help="the verdict alone, for programs")
    add(
        "--least-wait",
        type=_seconds,
        default=LEAST_WAIT,
        metavar="SECONDS",
        help="blame nobody for a rank that waits for less (default: %(default)g)",
    )
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
