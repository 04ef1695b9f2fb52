"""The command `allhands info`: shows what is available, and by which ways data goes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from allhands import _C, settings
from allhands.backends.tuned import (
    figures_folder,
    read_tuned,
    tuned_path,
    tuning_changes,
)
from allhands.debug.byte_sizes import parse_size, readable_size
from allhands.debug.command_console import CommandConsole
from allhands.debug.installation.facts import describe, in_lines
from allhands.elastic.command_line import CommandLineParser

__all__ = ["main"]

_OPERATIONS = (
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "broadcast",
    "all_gather",
    "gather",
    "scatter",
    "all_to_all",
)
_SIZES = tuple(1 << power for power in (3, 16, 18, 20, 24, 26))


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    given = _parser().parse_args(args)
    if given.json:
        sys.stdout.write(json.dumps(describe(can_read_peers), indent=1) + "\n")
        return 0
    console = CommandConsole(highlight=False)
    reads = can_read_peers()
    can = "can" if reads else "cannot"
    shared = "" if given.shared_arrays else "not "
    console.print(
        f"{given.nproc} ranks on {len(os.sched_getaffinity(0))} CPUs; processes {can} "
        f"read each other's memory; arrays are {shared}shared",
        soft_wrap=True,
    )
    console.print(f"tuning: {_tuning_source(given.nproc)}", soft_wrap=True)
    if settings.reduce_order.get() == "rank":
        console.print(
            f"reductions between hosts: in rank order ({settings.reduce_order.name})"
        )
    if given.ways is None:
        for line in in_lines(describe(can_read_peers)):
            console.print(line, soft_wrap=True, markup=False)
        return 0
    if given.ways:
        console.print(_choices(given, reads))
    else:
        console.print(_overview(given, reads))
        console.print("coop: cooperative; `--ways OP` says why and what it is")
    return 0


def can_read_peers() -> bool:
    """Return whether processes of one user may read each other's memory here."""
    end, other = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(other)
            os.read(end, 1)  # until the parent has looked or ended
        finally:
            os._exit(0)
    try:
        return _C.can_read_child(child)
    finally:
        os.close(end)
        os.close(other)
        os.waitpid(child, 0)


def _tuning_source(ranks: int) -> str:
    """Return the source of the sizes at which data takes another way."""
    tuned = read_tuned()
    cpus = len(os.sched_getaffinity(0))
    folder = figures_folder()
    if tuned is not None and tuned.changes(ranks, cpus):
        source = f"found by `allhands tune`, {tuned_path()}"
    elif folder and _C.figures(folder, rehearse=False) is not None:
        source = f"fitted to this host's figures of this boot, {folder}"
    else:
        source = "the defaults, fitted to the caches of this host"
    names = ", ".join(settings.tuning.get())
    return f"{source}; {settings.tuning.name} changes {names}" if names else source


def _parser() -> argparse.ArgumentParser:
    parser = CommandLineParser(
        prog="allhands info",
        description="Say what this installation and this host offer: backends, array "
        "libraries, limits, settings and where they are from; for bug reports, too.",
    )
    add = parser.add_argument
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--json", action="store_true", help="the same as JSON")
    other.add_argument(
        "--ways",
        nargs="?",
        const="",
        metavar="OP",
        choices=["", *_OPERATIONS],
        help="by which way the data of each operation goes; with OP: of this one, "
        "and why",
    )
    add("--size", type=_size, default=1 << 20, help="bytes, also as 16K (default: 1M)")
    add("-n", "--nproc", type=_ranks, default=2, help="ranks (default: 2)")
    add(
        "--shared-arrays",
        action="store_true",
        help="the arrays are those of empty_shared",
    )
    return parser


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _ranks(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"ranks are {text!r}; want 1 or more")
    return int(text)


def _rows(
    op: str, size: int, given: argparse.Namespace, reads: bool
) -> list[tuple[str, bool, str]]:
    return _C.ways(
        op,
        size,
        given.nproc,
        can_read_peers=reads,
        has_shared_arrays=given.shared_arrays,
        tuning=tuning_changes([_C.process_identity()] * given.nproc),
        figures=figures_folder(),
    )


def _way(op: str, size: int, given: argparse.Namespace, reads: bool) -> str:
    return next(way for way, is_worth, _ in _rows(op, size, given, reads) if is_worth)


def _overview(given: argparse.Namespace, reads: bool) -> Table:
    """Return a table with one row per operation and one column per size."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for size in _SIZES:
        table.add_column(readable_size(size), no_wrap=True)
    for op in _OPERATIONS:
        short = [_way(op, size, given, reads) for size in _SIZES]
        table.add_row(op, *(way.removesuffix("erative") for way in short))
    return table


def _choices(given: argparse.Namespace, reads: bool) -> Table:
    """Return the rows of one operation: which way is taken, which is not, and why."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column(f"{given.ways}, {readable_size(given.size)}", no_wrap=True)
    table.add_column("")
    table.add_column("because")
    is_taken = False
    for way, is_worth, reason in _rows(given.ways, given.size, given, reads):
        state = "taken" if is_worth and not is_taken else "else" if is_worth else "no"
        is_taken = is_taken or is_worth
        table.add_row(way, state, reason)
    return table
