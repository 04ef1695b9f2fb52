"""The command line of `allhands run`: torchrun's options, and those of this package.

Each function adds the options of one subject, which `--help` shows together.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from allhands.elastic.command_line import CommandLineParser
from allhands.elastic.logs import Std
from allhands.elastic.signals import ENDING_SIGNALS, parse_signals

__all__ = ["get_args_parser"]


def get_args_parser(prog: str = "allhands run") -> argparse.ArgumentParser:
    """Return the parser; `PET_<OPTION>` in the environment sets an option's default."""
    parser = CommandLineParser(
        prog=prog,
        usage=f"{prog} [options] program [arguments]",
        description="Start a program on several ranks of this host, or of several.",
    )
    _add_program(parser)
    _add_ranks(_Adder(parser, "ranks"))
    _add_running(_Adder(parser, "how the program runs"))
    _add_failures(_Adder(parser, "failures and ends"))
    _add_output(_Adder(parser, "output"))
    _add_nodes(_Adder(parser, "several nodes"))
    return parser


class _Adder:
    """Adds options: with dashes and underscores, default from the environment."""

    def __init__(self, parser: argparse.ArgumentParser, title: str) -> None:
        self._group = parser.add_argument_group(title)

    def __call__(self, name: str, also: Sequence[str] = (), **options: Any) -> None:
        bare = name.removeprefix("--")
        spellings = dict.fromkeys([*also, name, "--" + bare.replace("-", "_")])
        given = os.environ.get("PET_" + bare.replace("-", "_").upper(), "")
        if given:
            is_flag = options.get("action") == "store_true"
            options["default"] = given == "1" if is_flag else given
        # Named here, for without it a second long spelling would name the value.
        destination = bare.replace("-", "_")
        self._group.add_argument(*spellings, dest=destination, **options)


def _add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("training_script", metavar="program", help="what to start")
    parser.add_argument(
        "training_script_args",
        metavar="arguments",
        nargs=argparse.REMAINDER,
        help="all that follows is the program's",
    ).required = False  # else the error for no program asks for arguments, too


def _add_ranks(add: _Adder) -> None:
    add(
        "--nproc-per-node",
        also=("-n", "--nproc"),
        default="1",
        metavar="N",
        help="ranks of this node: a number, auto, cpu or gpu (default 1)",
    )
    add("--role", default="default", help="ROLE_NAME of the ranks")
    add(
        "--virtual-local-rank",
        action="store_true",
        help="LOCAL_RANK is 0, and CUDA_VISIBLE_DEVICES the rank's own GPU",
    )
    add("--rdzv-id", default="", help="the run's id (default: a random one)")
    add(
        "--start-method",
        choices=["spawn", "fork", "forkserver"],
        default="spawn",
        help="accepted: every rank is a new process",
    )


def _add_running(add: _Adder) -> None:
    add("--module", also=("-m",), action="store_true", help="the program is a module")
    add("--no-python", action="store_true", help="run the program itself, no Python")
    add("--run-path", action="store_true", help="run the program with runpy.run_path")
    add(
        "--preload",
        default="",
        metavar="MODULES",
        help="load these once, such as numpy,allhands, and fork the ranks from there",
    )
    add(
        "--replace-gloo",
        action="store_true",
        help="programs that say gloo get this package's own engine",
    )


def _add_failures(add: _Adder) -> None:
    add("--max-restarts", type=int, default=0, help="restarts of all ranks on failure")
    add(
        "--shutdown-timeout",
        type=float,
        default=None,
        help="seconds that ranks get to end after SIGTERM before SIGKILL (default "
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, or 30)",
    )
    add(
        "--signals-to-handle",
        type=_signals,
        default=ENDING_SIGNALS,
        metavar="SIGNALS",
        help="signals that end the ranks and the job (default: SIGTERM,SIGINT,SIGHUP,"
        "SIGQUIT)",
    )
    add(
        "--monitor-interval",
        type=float,
        default=0.1,
        help="seconds between looks at the ranks, on kernels without pidfd",
    )
    add(
        "--dumps",
        default="",
        metavar="FOLDER",
        help="where the flight records of a failed attempt go, as one file",
    )


def _add_output(add: _Adder) -> None:
    add("--log-dir", default="", help="folder for the files of --redirects and --tee")
    add(
        "--redirects",
        also=("-r",),
        type=_streams,
        default=Std.NONE,
        help="streams to files: 1 stdout, 2 stderr, 3 both; or by local rank 0:1,1:3",
    )
    add(
        "--tee",
        also=("-t",),
        type=_streams,
        default=Std.NONE,
        help="streams to files and to the console",
    )
    add("--local-ranks-filter", default="", help="show only these ranks, such as 0,2")
    for name in "stdout", "stderr":
        add(
            f"--duplicate-{name}-filters",
            default="",
            metavar="WORDS",
            help=f"lines of {name} with one of these (a,b) also go to one file; "
            "needs --tee",
        )


def _add_nodes(add: _Adder) -> None:
    add("--nnodes", default="1", help="nodes: hosts on which this command is run")
    add("--node-rank", type=int, default=0, help="which of them this is, from 0 up")
    add(
        "--master-addr",
        default="",
        help="where the ranks meet, at node 0 (one node: 127.0.0.1)",
    )
    add(
        "--master-port",
        type=int,
        default=0,
        help="the port there (one node: MASTER_PORT, default a free one; else 29500)",
    )
    add(
        "--rdzv-endpoint",
        default="",
        help="host:port, for --master-addr and --master-port; unused with one node",
    )
    add(
        "--rdzv-conf",
        default="",
        help="timeout=N: seconds that nodes wait for each other (default 600)",
    )
    add("--rdzv-backend", default="static", help="static; unused with one node")
    add("--standalone", action="store_true", help="accepted: one node always is")
    add("--local-addr", default="", help="accepted, unused")
    add("--event-log-handler", default="null", help="accepted, unused")


def _streams(text: str) -> Any:
    return _parsed(Std.from_str, text)


def _signals(text: str) -> Any:
    return _parsed(parse_signals, text)


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
