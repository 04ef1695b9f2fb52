"""What the ranks of a command line run: their arguments, and what is loaded before."""

from __future__ import annotations

import argparse
import os
import sys
import zipfile
from collections.abc import Callable

from allhands.elastic.program_module import check_module
from allhands.elastic.worker_spec import Preload

__all__ = ["command_of", "preload_of"]

# Torchrun's: the Python that runs the program, in place of this one.
_OTHER_PYTHON = "PYTHON_EXEC"

_RUN_PATH = (
    "import runpy, sys; del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def command_of(args: argparse.Namespace) -> Callable[[int], list[str]]:
    """Return what gives a local rank its argument list.

    Raises:
        ValueError: the options exclude each other.
        OSError: there is no such program or module.
    """
    program, rest = args.training_script, args.training_script_args
    if args.no_python and args.module:
        raise ValueError("--no-python and --module exclude each other")
    other = os.environ.get(_OTHER_PYTHON)
    python = [other or sys.executable, "-u"]
    if args.run_path:
        start = [*python, "-c", _RUN_PATH, program]
    elif args.no_python:
        start = [program]
    elif args.module:
        if not other:
            check_module(program)  # one error here, as for a missing file
        start = [*python, "-m", program]
    else:
        if program != "-":
            os.stat(program)  # one error here instead of one from every rank
        start = [*python, program]
    if getattr(args, "use_env", True):
        return lambda _: [*start, *rest]
    return lambda local_rank: [*start, f"--local-rank={local_rank}", *rest]


def preload_of(args: argparse.Namespace) -> Preload | None:
    """Return what --preload asks for, if it is given.

    Raises:
        ValueError: another option excludes it.
    """
    modules = [name.strip() for name in args.preload.split(",") if name.strip()]
    if not modules:
        return None
    if args.no_python:
        raise ValueError("--preload and --no-python exclude each other")
    if not getattr(args, "use_env", True):
        raise ValueError(
            "--preload needs ranks with the same arguments: give --use-env, too"
        )
    return Preload(modules, _first_path(args))


def _first_path(args: argparse.Namespace) -> str | None:
    """Return what Python itself puts first in the `sys.path` of a rank."""
    if sys.version_info >= (3, 11) and os.environ.get("PYTHONSAFEPATH"):
        return None
    program: str = args.training_script
    if args.run_path or program == "-":
        return ""
    if args.module:
        return os.getcwd()
    if os.path.isdir(program) or zipfile.is_zipfile(program):
        return program
    return os.path.dirname(os.path.realpath(program))
