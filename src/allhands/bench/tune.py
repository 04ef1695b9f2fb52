"""`allhands tune`: finds the tuning numbers that suit this machine, and saves them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from allhands import _C, settings
from allhands.backends.tuned import Tuned, kept_tuned, tuned_path, write_tuned
from allhands.bench.ending import carried_out
from allhands.bench.job import Job
from allhands.bench.jobs import started
from allhands.bench.measure import Effort, measure
from allhands.bench.peers import OURS
from allhands.bench.thresholds import NEVER, VARIANTS, Choice, Times, choose, plan
from allhands.debug.command_console import CommandConsole
from allhands.elastic.command_line import CommandLineParser

__all__ = ["main"]


def main(args: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    parser = _parser()
    given = parser.parse_args(args)
    console = CommandConsole(highlight=False)
    act = partial(_forget if given.forget else _tune, given, console)
    return carried_out(parser.prog, act, "; nothing was kept")


def _parser() -> argparse.ArgumentParser:
    parser = CommandLineParser(
        prog="allhands tune",
        description="Measure by which ways data goes fastest on this machine, at which "
        "sizes, and keep that for all later jobs of this user on this CPU. It takes a "
        "minute or two; run nothing else meanwhile.",
    )
    add = parser.add_argument
    add(
        "--ranks",
        type=_ranks,
        default=[2, 4],
        metavar="N,...",
        help="how many ranks; those that outnumber the CPUs count apart (default: 2,4)",
    )
    add("--rounds", type=_positive, default=5, help="per cell (default: 5)")
    add("--dry-run", action="store_true", help="keep nothing")
    add("--json", type=Path, metavar="FILE", help="write every figure there")
    add("--forget", action="store_true", help="measure nothing: forget what was kept")
    return parser


def _ranks(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(x.isdecimal() and 2 <= int(x) <= 64 for x in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}; want numbers from 2 to 64, as 2,4")
    return sorted({int(x) for x in numbers})


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}; want a number from 1 up")
    return int(text)


def _forget(_: argparse.Namespace, console: Console) -> None:
    path = tuned_path()
    try:
        path.unlink()
    except FileNotFoundError:
        console.print(f"nothing was kept in {path}", soft_wrap=True)
    else:
        console.print(f"forgot {path}", soft_wrap=True)


def _tune(given: argparse.Namespace, console: Console) -> None:
    cpus = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    if load > cpus / 2:
        console.print(
            f"this machine is busy (load {load:.1f} on {cpus} CPUs): "
            "what is found may not suit it",
            soft_wrap=True,
        )
    _check_places(given)
    before = kept_tuned() or Tuned({}, {})
    roomy = [ranks for ranks in given.ranks if ranks <= cpus]
    crowded = [ranks for ranks in given.ranks if ranks > cpus]
    times: dict[str, Times] = {}
    found: dict[str, list[Choice]] = {}
    with _progress(console) as progress:
        plans = {ranks: plan(ranks) for ranks in given.ranks}
        task = progress.add_task("starting", total=sum(map(len, plans.values())))
        for name, numbers in (("roomy", roomy), ("crowded", crowded)):
            times[name] = {
                cell: seconds
                for ranks in numbers
                for cell, seconds in _times(
                    ranks, given.rounds, lambda text: _tell(progress, task, text)
                ).items()
            }
            if numbers:
                found[name] = choose(times[name], _C.tuning_here(numbers[0]))
    for name, numbers in (("roomy", roomy), ("crowded", crowded)):
        if numbers:
            console.print(_table(numbers, cpus, found[name]))
    _conclude(given, console, times, found, before)


def _check_places(given: argparse.Namespace) -> None:
    """Fail before the measuring rather than after it."""
    if given.json and not os.access(given.json.parent, os.W_OK):
        raise OSError(f"--json: {str(given.json)!r} cannot be written")
    if not given.dry_run:
        folder = tuned_path().parent
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise OSError(f"{str(folder)!r} cannot be written; --dry-run needs it not")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        auto_refresh=False,  # no thread that wakes up while ranks are measured
    )


def _tell(progress: Progress, task: Any, text: str) -> None:
    progress.update(task, description=text, advance=1, refresh=True)


def _times(ranks: int, rounds: int, tell: Callable[[str], None]) -> Times:
    """Measure all cells on `ranks` ranks, in turn on the variants of each cell."""
    effort = Effort(rounds, 0.005)
    times = {}
    kinds = [(OURS, _environment(changes)) for changes in VARIANTS.values()]
    with started(kinds, ranks) as jobs:
        by_variant = dict(zip(VARIANTS, jobs, strict=True))
        for cell, variants in plan(ranks).items():
            tell(f"{cell.op} on {ranks} ranks")
            chosen = [by_variant[variant] for variant in variants]
            results = measure(cell, chosen, effort, _ignore)
            times[cell] = {
                variant: min(result.blocks)  # other load only adds to the time
                for variant, result in zip(variants, results, strict=True)
            }
    return times


def _ignore(_: Job) -> None:
    """Do nothing: the progress is shown by cells."""


def _environment(changes: Mapping[str, int]) -> dict[str, str]:
    text = ",".join(f"{name}={number}" for name, number in changes.items())
    return {settings.tuning.name: text, settings.calibration.name: "no"}


def _table(numbers: Sequence[int], cpus: int, choices: Sequence[Choice]) -> Table:
    ranks = " and ".join(map(str, numbers))
    table = Table(box=SIMPLE_HEAD, title=f"{ranks} ranks on {cpus} CPUs")
    table.add_column("", no_wrap=True)
    for column in ("usual", "best here", "times as fast"):
        table.add_column(column, justify="right", no_wrap=True)
    for choice in choices:
        best = "" if choice.best == choice.now else _readable(choice.best)
        gain = f"{choice.gain:.2f}" if best else ""
        table.add_row(choice.name, _readable(choice.now), best, gain)
    return table


def _readable(size: int) -> str:
    """Return the size as the setting takes it."""
    if size >= NEVER:
        return "never"
    for unit, one in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= one and size % one == 0:
            return f"{size // one}{unit}"
    return str(size)


def _conclude(
    given: argparse.Namespace,
    console: Console,
    times: Mapping[str, Times],
    found: Mapping[str, Sequence[Choice]],
    before: Tuned,
) -> None:
    numbers = {
        name: {choice.name: choice.best for choice in choices}
        for name, choices in found.items()
    }
    # Numbers that were not measured now stay as they were.
    tuned = Tuned(
        numbers.get("roomy", before.roomy), numbers.get("crowded", before.crowded)
    )
    if given.json:
        given.json.write_text(json.dumps(_record(times, tuned), indent=1) + "\n")
    if given.dry_run:
        console.print("nothing was kept: --dry-run")
        return
    write_tuned(tuned)
    console.print(
        f"kept in {tuned_path()}; `allhands tune --forget` removes it", soft_wrap=True
    )


def _record(times: Mapping[str, Times], tuned: Tuned) -> dict[str, Any]:
    return {
        "cpu": _C.cpu_model(),
        "roomy": dict(tuned.roomy),
        "crowded": dict(tuned.crowded),
        "cells": [
            {"ranks": cell.ranks, "op": cell.op, "size": cell.size, "seconds": seconds}
            for measured in times.values()
            for cell, seconds in measured.items()
        ],
    }
