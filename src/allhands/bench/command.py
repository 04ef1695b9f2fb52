"""The command line of `allhands bench`, its tables and the files that it writes."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from allhands.backends.tuned import find_figures
from allhands.bench.cells import (
    ARRAYS,
    DTYPES,
    MODES,
    OPERATIONS,
    Cell,
    all_cells,
)
from allhands.bench.ending import carried_out
from allhands.bench.fake_hosts import MOST, what_is_missing
from allhands.bench.job import JobError
from allhands.bench.limits import measure_limits
from allhands.bench.machine import describe
from allhands.bench.measure import Effort
from allhands.bench.page import check_plot
from allhands.bench.peers import OURS, PEERS, find_peer
from allhands.bench.plot import plot
from allhands.bench.record import read_record, write_record
from allhands.bench.results import Result
from allhands.bench.scale import Scale, measure_scale, parse_ranks
from allhands.bench.scale_plot import plot_scale
from allhands.bench.scale_table import scale_tables
from allhands.bench.suite import Suite
from allhands.bench.table import form, results_table, summary_table
from allhands.bench.training import measure_training, training_table
from allhands.debug.byte_sizes import parse_size, readable_size
from allhands.debug.command_console import CommandConsole
from allhands.elastic.command_line import CommandLineParser

__all__ = ["main"]

_OTHERS = [name for name in PEERS if name != OURS]
_OPS = "all_reduce,broadcast,all_gather_single,reduce_scatter_single,send_recv,barrier"
_SIZES = "8,1K,16K,256K,1M,16M,64M"
_RANKS = [2, 4]  # on this host
_TAKEN = {  # options that may go with --torch and with --scale
    "torch": ("ranks", "rounds", "json"),
    "scale": ("rounds", "json", "plot"),
}
_WIDTH = 120  # of the tables, where the output is no terminal

T = TypeVar("T")


def _parser() -> argparse.ArgumentParser:
    parser = CommandLineParser(
        prog="allhands bench",
        description="Measure collectives and messages on this machine, beside Gloo "
        "(torch) and MPI (mpi4py) where they are installed. Lists are separated by "
        "commas.",
    )
    add = parser.add_argument
    for name, known, default in (
        ("--ops", OPERATIONS, _OPS),
        ("--dtypes", DTYPES, "float32"),
        ("--arrays", ARRAYS, "numpy"),
        ("--modes", MODES, "sync"),
    ):
        shown = default.replace(",", ", ")  # a help text may be broken after a comma
        text = f"all, or of: {', '.join(known)} (default: {shown})"
        add(name, type=_some(known), default=default, help=text)
    for name, kind, default, text in (
        ("--sizes", _list(_size), _SIZES, "bytes, also as 16K, 1M, 1G"),
        ("--rounds", _positive, "5", "of all peers in turn, per cell"),
        ("--min-time", _seconds, "0.02", "seconds of a peer's calls, per round"),
    ):
        add(name, type=kind, default=default, help=f"{text} (default: %(default)s)")
    add(
        "--ranks",
        type=_list(_ranks),
        help="how many in all (default: 2,4; with --hosts one on each)",
    )
    add(
        "--hosts",
        type=_hosts,
        help="measure between so many hosts, made of this machine's network "
        "namespaces, beside bare sockets, too; as many ranks on each, the first on "
        "the first. Takes root",
    )
    add(
        "--peers",
        type=_peers,
        help="gloo, mpi, with --hosts sockets, or none (default: those installed); "
        "mpi:ofi and mpi:ucx are MPICH over these, mpi:FOLDER is another MPI, by the "
        "folder of its bin and lib",
    )
    add(
        "--from",
        dest="source",
        type=_source,
        metavar="FILE",
        help="measure nothing: show what --json wrote there of the cells asked for",
    )
    add(
        "--torch",
        action="store_true",
        help="measure steps of training with PyTorch instead, on Gloo and on this "
        "engine; takes --ranks, --rounds and --json",
    )
    add(
        "--scale",
        type=_scale,
        metavar="2,4,...,512",
        help="measure what more ranks cost instead: start, end, small operations, "
        "store and memory; takes --rounds, --json and --plot",
    )
    add("--json", type=_file, metavar="FILE", help="write every figure there")
    add("--plot", type=_picture, metavar="FILE.png", help="draw a picture there")
    return parser


def _list(convert: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Return a function that reads a list with commas and keeps each entry once."""
    return lambda text: list(dict.fromkeys(convert(x) for x in text.split(",")))


def _some(known: Any) -> Callable[[str], list[str]]:
    def convert(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not known; want all, or of {', '.join(known)}"
            )
        return text

    return lambda text: list(known) if text == "all" else _list(convert)(text)


def _peers(text: str) -> list[str]:
    if text in ("none", "all"):
        return [] if text == "none" else _OTHERS
    return _list(_peer)(text)


def _peer(text: str) -> str:
    try:
        peer = find_peer(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if peer is PEERS[OURS]:
        raise argparse.ArgumentTypeError(f"{OURS} is always measured")
    if problem := peer.missing():
        raise argparse.ArgumentTypeError(f"{text}: {problem}")
    return text


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}; want a number from {least} up")
    return int(text)


def _ranks(text: str) -> int:
    return _number(text, 2)


def _hosts(text: str) -> int:
    hosts = _number(text, 2)
    if hosts > MOST:
        raise argparse.ArgumentTypeError(f"{text!r}; want a number up to {MOST}")
    return hosts


def _scale(text: str) -> list[int]:
    try:
        return parse_ranks(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    return _number(text, 1)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 10:
        raise argparse.ArgumentTypeError(f"{text!r}; want seconds, above 0 to 10")
    return seconds


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir():
        why = "it is a folder"
    elif not path.parent.is_dir():
        why = f"there is no folder {str(path.parent)!r}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "this user may not write there"
    else:
        return path
    raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {why}")


def _source(text: str) -> tuple[dict[str, Any], list[list[Result]]]:
    try:
        return read_record(Path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _picture(text: str) -> Path:
    path = _file(text)
    try:
        check_plot(path)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def main(args: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = _parser()
    options = parser.parse_args(args)
    console = CommandConsole(_WIDTH)
    _check_taken(parser, options)
    if not options.source and (problem := _problem_of_hosts(options)):
        parser.error(problem)
    if options.torch:
        act = _train
    elif options.scale:
        act = _grow
    else:
        act = _show if options.source else _run
    return carried_out(parser.prog, partial(act, options, console))


def _run(options: argparse.Namespace, console: Console) -> None:
    hosts = options.hosts or 1
    others = [peer for peer in _OTHERS if hosts > 1 or not PEERS[peer].needs_hosts]
    missing = {peer: PEERS[peer].missing() for peer in others}
    peers = options.peers
    if peers is None:
        peers = [peer for peer in others if not missing[peer]]
    numbers = options.ranks or ([hosts] if hosts > 1 else _RANKS)
    cells = {ranks: list(_cells(options, ranks, hosts)) for ranks in numbers}
    find_figures()
    limits = measure_limits(options.sizes if hosts == 1 else [])
    machine = {**describe(), "limits": limits}
    effort = Effort(options.rounds, options.min_time)
    rows = _measure(cells, hosts, [OURS, *peers], effort, console, machine)
    _conclude(options, console, machine, rows)
    if options.peers is None:
        for peer, problem in missing.items():
            if problem:
                console.print(f"{peer} was not measured: {problem}")
    if options.json:
        write_record(options.json, asdict(effort), machine, rows)


def _problem_of_hosts(options: argparse.Namespace) -> str:
    """Say why the hosts asked for cannot be measured; empty if no reason is known."""
    hosts = options.hosts
    if hosts is None:
        for peer in options.peers or []:
            if find_peer(peer).needs_hosts:
                return f"--peers: {peer} is measured between hosts; add --hosts 2"
        return ""
    if "shared" in options.arrays:
        return "--arrays shared does not go with --hosts: they share no memory"
    for ranks in options.ranks or []:
        if ranks % hosts:
            return (
                f"--ranks: {ranks} ranks are not as many on each of {hosts} hosts; "
                f"want a multiple of {hosts}, such as {hosts * (ranks // hosts + 1)}"
            )
    problem = what_is_missing()
    return f"--hosts: {problem}" if problem else ""


def _check_taken(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exit if --torch or --scale cannot run, or does not go with another option."""
    if options.torch and (problem := PEERS["gloo"].missing()):
        parser.error(f"--torch: {problem}")
    defaults = vars(parser.parse_args([]))
    given = [name for name, value in vars(options).items() if value != defaults[name]]
    for mode, taken in _TAKEN.items():
        for name in given:
            if mode in given and name not in (mode, *taken):
                option = {"source": "from"}.get(name, name).replace("_", "-")
                takes = ", ".join(f"--{name}" for name in taken)
                parser.error(f"--{mode} does not go with --{option}; it takes {takes}")


def _train(options: argparse.Namespace, console: Console) -> None:
    """Measure steps of training, and print a table for each number of ranks."""
    find_figures()
    machine = describe()
    measured = {}
    for ranks in options.ranks or _RANKS:
        with console.status(f"training on {ranks} ranks"):
            version, rows = measure_training(ranks, int(options.rounds))
        machine.setdefault("versions", {})["torch"] = version
        console.print(f"steps of training, {ranks} ranks", style="bold")
        console.print(training_table(rows))
        measured[ranks] = [{"name": row.name, **row.seconds} for row in rows]
    console.print(_title(machine), highlight=False, soft_wrap=True)
    if options.json:
        record = {"machine": machine, "rounds": options.rounds, "training": measured}
        options.json.write_text(json.dumps(record, indent=1))


def _grow(options: argparse.Namespace, console: Console) -> None:
    """Measure what more ranks cost; after a failure show what was measured before."""
    find_figures()
    machine = {**describe(), "versions": {"allhands": version("allhands")}}
    rows: list[Scale] = []
    try:
        with console.status("starting") as status:

            def tell(ranks: int, turn: int) -> None:
                status.update(f"{ranks} ranks, {turn + 1} of {options.rounds}")

            for row in measure_scale(options.scale, options.rounds, tell):
                rows.append(row)
    finally:
        if rows:
            for title, table in scale_tables(rows):
                console.print(title, style="bold")
                console.print(table)
            console.print(_title(machine), highlight=False, soft_wrap=True)
    if options.plot:
        plot_scale(options.plot, rows, _title(machine))
    if options.json:
        measured = [{"ranks": row.ranks, **row.figures} for row in rows]
        record = {"machine": machine, "rounds": options.rounds, "scale": measured}
        options.json.write_text(json.dumps(record, indent=1))


def _show(options: argparse.Namespace, console: Console) -> None:
    """Show the cells asked for from the record of an earlier run."""
    machine, kept = options.source
    wanted = {
        cell
        for ranks, hosts in {(row[0].cell.ranks, row[0].cell.hosts) for row in kept}
        if ranks in (options.ranks or [ranks]) and hosts == (options.hosts or hosts)
        for cell in _cells(options, ranks, hosts)
    }
    wanted_peers = options.peers
    rows = [
        [
            result
            for result in row
            if wanted_peers is None or result.peer in (OURS, *wanted_peers)
        ]
        for row in kept
        if row[0].cell in wanted
    ]
    if not rows:
        raise JobError("the file of --from has none of the cells asked for")
    for key, group in groupby(rows, key=lambda row: form(row[0].cell)):
        _print_table(console, key, list(group), machine)
    _conclude(options, console, machine, rows)


def _print_table(
    console: Console, key: str, rows: list[list[Result]], machine: dict[str, Any]
) -> None:
    console.print(key, style="bold")
    console.print(results_table(rows, machine["limits"]["copy"], console.width))


def _conclude(
    options: argparse.Namespace,
    console: Console,
    machine: dict[str, Any],
    rows: list[list[Result]],
) -> None:
    if summary := summary_table(rows, console.width):
        console.print(f"times as long as {OURS}", style="bold")
        console.print(summary)
    _print_machine(console, machine)
    if options.plot:
        plot(options.plot, rows, machine["limits"], _title(machine))


def _cells(options: argparse.Namespace, ranks: int, hosts: int) -> Any:
    return all_cells(
        ranks,
        options.ops,
        options.dtypes,
        options.arrays,
        options.modes,
        options.sizes,
        hosts,
    )


def _measure(
    cells: dict[int, list[Cell]],
    hosts: int,
    peers: list[str],
    effort: Effort,
    console: Console,
    machine: dict[str, Any],
) -> list[list[Result]]:
    """Measure all cells; a table is printed when the first cell of the next is done."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        auto_refresh=False,  # no thread that wakes up while ranks are measured
    )
    task = progress.add_task("starting", total=sum(map(len, cells.values())))

    def tell(cell: Cell, peer: str) -> None:
        progress.update(task, description=f"{_where(cell)} on {peer}", refresh=True)

    versions = machine.setdefault("versions", {})
    rows: list[list[Result]] = []
    suite = Suite(cells, peers, effort, tell, hosts)
    with progress, closing(suite.run(versions)) as measured:
        for key, group in groupby(measured, lambda row: form(row[0].cell)):
            same = []
            for row in group:
                same.append(row)
                progress.advance(task)
            _print_table(console, key, same, machine)
            rows += same
    return rows


def _where(cell: Cell) -> str:
    size = "" if cell.op == "barrier" else f", {readable_size(cell.size)}"
    return form(cell) + size


def _print_machine(console: Console, machine: dict[str, Any]) -> None:
    for line in (_title(machine), *_limits(machine["limits"])):
        console.print(line, highlight=False, soft_wrap=True)


def _title(machine: dict[str, Any]) -> str:
    """Describe the machine and the versions, which the figures depend on."""
    used = ", ".join(map(str, machine["affinity"]))
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cpus']} CPUs, used: {used}; "
        f"load {machine['load']:.1f} at the start\n"
        f"Linux {machine['linux']}, Python {machine['python']}, {versions}"
    )


def _limits(limits: dict[str, Any]) -> Iterator[str]:
    """Describe in words what the machine can do at best."""
    copies = [
        f"{rate / 1e9:.3g} GB/s at {readable_size(size)}"
        for size, rate in limits["copy"].items()
    ]
    if copies:
        yield f"one core copies {', '.join(copies)}"
    yield f"a process that sleeps wakes up in {limits['wake_up'] * 1e6:.3g} µs"
    if limits["hand_over"]:
        yield f"one that looks at memory sees it in {limits['hand_over'] * 1e6:.2g} µs"
