"""The `allhands` command, also `python -m allhands`, with its table of subcommands."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from allhands.elastic.command_line import CommandLineParser, did_you_mean
from allhands.elastic.streams import prepare_streams

__all__ = ["main"]

_COMMANDS = {
    "run": ("allhands.run", "start a program on several ranks of this host"),
    "bench": ("allhands.bench.command", "measure speed here, beside Gloo and MPI"),
    "tune": ("allhands.bench.tune", "fit this package to this machine, for good"),
    "debug": (
        "allhands.debug.command",
        "say from its records why a job hung or failed",
    ),
    "trace": (
        "allhands.debug.trace_command",
        "write a timeline of a job, for Perfetto",
    ),
    "top": (
        "allhands.debug.top.command",
        "show what the ranks of a running job do",
    ),
    "info": (
        "allhands.debug.installation.command",
        "say what this installation and this host offer",
    ),
}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args`; return the exit code."""
    prepare_streams()
    parser = _parser()
    given = parser.parse_args(args)
    if given.version:
        metadata = import_module("importlib.metadata")  # here: slow to import
        print("allhands", metadata.version("allhands"))  # noqa: T201
        return 0
    if given.command is None:
        parser.print_help(sys.stderr)
        return 2
    if given.command not in _COMMANDS:
        guess = did_you_mean(given.command, _COMMANDS)
        names = ", ".join(_COMMANDS)
        parser.error(f"{given.command!r} is no command; there are {names}{guess}")
    module, _ = _COMMANDS[given.command]
    try:
        code: int = import_module(module).main(given.arguments)
        sys.stdout.flush()
    except OSError as error:
        # What is left of the output is not tried again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # who reads has seen enough
            return 128 + signal.SIGPIPE
        sys.stderr.write(f"allhands {given.command}: {error}\n")
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    lines = [f"  {name:8}{help}" for name, (_, help) in _COMMANDS.items()]
    parser = CommandLineParser(
        prog="allhands",
        usage="allhands [-h] [--version] COMMAND ...",
        description="Distributed communication for Python arrays.",
        epilog="\n".join(
            ["commands:", *lines, "", "`allhands COMMAND --help` says more."]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="store_true", help="show the version and exit"
    )
    hidden = argparse.SUPPRESS
    parser.add_argument("command", nargs="?", help=hidden)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=hidden)
    return parser


if __name__ == "__main__":
    sys.exit(main())
