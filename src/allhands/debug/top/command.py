"""`allhands top`: shows repeatedly what the ranks of a job on this host do."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from rich.console import Console
from rich.text import Text

from allhands.debug.top.jobs import job_of
from allhands.debug.top.row import RankRow
from allhands.debug.top.screen import headline, show
from allhands.debug.top.table import KEYS, sorted_rows, table_of
from allhands.debug.top.watch import Watch
from allhands.elastic.command_line import CommandLineParser

__all__ = ["main"]

_LEAST, _MOST = 0.1, 3600.0  # seconds


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 if no job can be watched."""
    given = _parser().parse_args(args)
    given.sort = next(key for key, (head, _) in KEYS.items() if head == given.sort)
    is_live = not (given.once or given.json)
    if is_live and (not sys.stdout.isatty() or Console().is_dumb_terminal):
        what = "is a dumb terminal (TERM)" if sys.stdout.isatty() else "is no terminal"
        sys.stderr.write(
            f"allhands top: stdout {what}, which shows no live table; use --once for "
            f"one table, --json for programs\n"
        )
        return 2
    # Handled like Ctrl-C: the terminal is restored.
    before = signal.signal(signal.SIGTERM, _end)
    try:
        _run(Watch(job_of(given.job)), given, is_live)
    except ValueError as error:
        sys.stderr.write(f"allhands top: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        # The rest of the output is not tried again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has ended
            return 0
        sys.stderr.write(f"allhands top: {error}\n")
        return 2
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    """End the command, once: timeout(1), for instance, sends each signal twice."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(watch: Watch, given: argparse.Namespace, is_live: bool) -> None:
    if is_live:
        show(watch, given.interval, given.sort)
        return
    is_done = False
    while not is_done:
        begin = time.monotonic()
        watch.look_for(given.interval)
        num_looks = watch.num_looks
        is_done = given.once or watch.has_ended
        rows = watch.rows()
        if given.json:
            told = _json(watch, rows, time.monotonic() - begin, num_looks)
            _write(f"{told}\n")
        else:
            width = None if sys.stdout.isatty() else 80
            console = Console(width=width, highlight=False)
            table = table_of(
                sorted_rows(rows, given.sort), given.sort, console.size.width
            )
            # Without a reader, rich itself would end the process.
            with console.capture() as text:
                console.print(Text(headline(watch, rows)), soft_wrap=True)
                console.print(table)
            _write(text.get())


def _json(watch: Watch, rows: Sequence[RankRow], seconds: float, looks: int) -> str:
    told = {
        "host": watch.host,
        "world_size": watch.world_size,
        "ranks_here": len(rows),
        "seconds": seconds,
        "looks": looks,
        "ranks": [row.as_json() for row in rows],
    }
    return json.dumps(told)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    heads = [head for head, _ in KEYS.values()]
    parser = CommandLineParser(
        prog="allhands top",
        description="Show what the ranks of a job on this host do: a line per rank, "
        "again and again. The job is not asked and not slowed.",
        epilog="Keys sort the table; q ends it. `late` is the share of the time in "
        "which others waited for a rank that itself waited for nobody.",
    )
    add = parser.add_argument
    add(
        "job",
        nargs="?",
        metavar="JOB|PID",
        help="its run id, or the process id of its launcher or of a rank (default: "
        "the only job that you have here)",
    )
    add(
        "--interval",
        type=_interval,
        default=2.0,
        metavar="SECONDS",
        help="between tables (default: %(default)g)",
    )
    add("--once", action="store_true", help="one table, after one interval")
    add("--json", action="store_true", help="a line of JSON per interval")
    add(
        "--sort",
        choices=heads,
        default="late",
        metavar="COLUMN",
        help=f"by which column: {', '.join(heads)} (default: %(default)s)",
    )
    return parser


def _interval(text: str) -> float:
    seconds = float(text)
    if not _LEAST <= seconds <= _MOST:
        raise argparse.ArgumentTypeError(
            f"must be in [{_LEAST:g}, {_MOST:g}] seconds, got {text}"
        )
    return seconds
