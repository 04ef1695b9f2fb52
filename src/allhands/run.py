"""`allhands run`, `python -m allhands.run`: one command starts all ranks of a program.

Takes torchrun's options and sets torchrun's environment variables, for one host. This
module reads the command line, hosts the job's store and makes its secret; the ranks are
run by `allhands.elastic.Agent`. See docs/howto/launch.md.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import secrets
import socket
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from allhands import settings
from allhands.backends.tuned import find_figures
from allhands.elastic import (
    Agent,
    Job,
    LogSpec,
    Preload,
    Std,
    check_module,
    parse_std,
)
from allhands.store import TCPStore

__all__ = [
    "determine_local_world_size",
    "get_args_parser",
    "main",
    "parse_args",
    "run",
]

# For the look-up of the store's address, should it be a name.
_STORE_LIMIT = timedelta(seconds=30)
_RUN_PATH = (
    "import runpy, sys; del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def get_args_parser(prog: str = "allhands run") -> argparse.ArgumentParser:
    """The command line's parser. `PET_<OPTION>` in the environment is a default."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} [options] program [arguments]",
        description="Start a program on several ranks of this host.",
    )
    add = _Adder(parser)
    add(
        "--nproc-per-node",
        also=("-n", "--nproc"),
        default="1",
        metavar="N",
        help="ranks: a number, auto, cpu or gpu",
    )
    add("--nnodes", default="1", help="hosts: 1 or 1:1 (more are not supported yet)")
    add("--node-rank", type=int, default=0, help="of this host: 0")
    add("--standalone", action="store_true", help="accepted: one host always is")
    add("--rdzv-backend", default="static", help="accepted, unused on one host")
    add("--rdzv-endpoint", default="", help="accepted, unused on one host")
    add("--rdzv-conf", default="", help="accepted, unused on one host")
    add("--rdzv-id", default="", help="the run's id (default: a random one)")
    add("--master-addr", default="127.0.0.1", help="where the ranks meet")
    add("--master-port", type=int, default=0, help="MASTER_PORT (default: a free one)")
    add("--local-addr", default="", help="accepted, unused on one host")
    add("--max-restarts", type=int, default=0, help="restarts of all ranks on failure")
    add(
        "--monitor-interval",
        type=float,
        default=0.1,
        help="seconds between looks at the ranks, on kernels without pidfd",
    )
    add(
        "--shutdown-timeout",
        type=float,
        default=30.0,
        help="seconds that ranks get to end after SIGTERM before SIGKILL (default 30)",
    )
    add(
        "--start-method",
        choices=["spawn", "fork", "forkserver"],
        default="spawn",
        help="accepted: every rank is a new process",
    )
    add("--role", default="default", help="ROLE_NAME of the ranks")
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
    add("--module", also=("-m",), action="store_true", help="the program is a module")
    add("--no-python", action="store_true", help="run the program itself, no Python")
    add(
        "--replace-gloo",
        action="store_true",
        help="programs of torch.distributed that say gloo get this package's engine",
    )
    add(
        "--preload",
        default="",
        metavar="MODULES",
        help="load these once, such as numpy,allhands, and fork the ranks from there",
    )
    add("--run-path", action="store_true", help="run the program with runpy.run_path")
    parser.add_argument("training_script", metavar="program", help="what to start")
    parser.add_argument(
        "training_script_args",
        metavar="arguments",
        nargs=argparse.REMAINDER,
        help="all that follows is the program's",
    )
    return parser


def _streams(text: str) -> Any:
    try:
        return parse_std(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class _Adder:
    """Adds options: with dashes and underscores, default from the environment."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def __call__(self, name: str, also: Sequence[str] = (), **options: Any) -> None:
        bare = name.removeprefix("--")
        spellings = dict.fromkeys([*also, name, "--" + bare.replace("-", "_")])
        given = os.environ.get("PET_" + bare.replace("-", "_").upper(), "")
        if given:
            is_flag = options.get("action") == "store_true"
            options["default"] = given == "1" if is_flag else given
        # Named here, for without it a second long spelling would name the value.
        destination = bare.replace("-", "_")
        self._parser.add_argument(*spellings, dest=destination, **options)


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """Read a command line (default: this process's)."""
    return get_args_parser().parse_args(args)


def determine_local_world_size(nproc_per_node: str) -> int:
    """Number of ranks for a value of `--nproc-per-node`.

    Raises:
        ValueError: it is no positive number and none of auto, cpu, gpu; or gpu, and no
            GPU can be counted.
    """
    if nproc_per_node == "cpu":
        return len(os.sched_getaffinity(0))
    if nproc_per_node == "gpu":
        return _num_gpus()
    if nproc_per_node == "auto":
        try:
            return _num_gpus()
        except ValueError:
            return len(os.sched_getaffinity(0))
    if not nproc_per_node.isdecimal() or int(nproc_per_node) < 1:
        raise ValueError(
            f"--nproc-per-node is {nproc_per_node!r}; want a number from 1 up, or one "
            "of auto, cpu, gpu"
        )
    return int(nproc_per_node)


def _num_gpus() -> int:
    """GPUs that a process would see (CUDA_VISIBLE_DEVICES holds), by CUDA's driver."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        reason = "there is no CUDA driver (libcuda.so.1) here"
    else:
        status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        reason = f"CUDA's driver finds none (error {status})"
    if count.value < 1:
        raise ValueError(
            f"--nproc-per-node gpu: cannot count GPUs: {reason}; give a number, or cpu"
        )
    return count.value


def run(args: argparse.Namespace) -> int:
    """Run the program that `args` describe; returns the launcher's exit code.

    Sets ALLHANDS_SECRET in this process's environment, unless it is set, and
    ALLHANDS_REPLACE_GLOO where that is asked for.

    Raises:
        ValueError: an option's value cannot be used.
        DistNetworkError: the store cannot listen on the address or port asked for, or
            not be reached there.
        OSError: the program cannot be started.
    """
    _check(args)
    num_workers = determine_local_world_size(args.nproc_per_node)
    shown = _shown_ranks(args.local_ranks_filter, num_workers)
    command = _command(args)
    preload = _preload(args)
    if num_workers > 1:
        find_figures()
    os.environ.setdefault(settings.secret.name, secrets.token_hex(32))
    if args.replace_gloo:
        os.environ[settings.replace_gloo.name] = "1"
    address = args.master_addr.strip("[]")
    # Hosted here, so that it outlives every rank.
    store = TCPStore(address, 0, is_master=True, timeout=_STORE_LIMIT)
    with _kept_free(address, args.master_port) as master_port:
        job = Job(
            command=command,
            num_workers=num_workers,
            run_id=args.rdzv_id or uuid.uuid4().hex,
            master_addr=address,
            master_port=master_port,
            store_port=store.port,
            role=args.role,
            max_restarts=args.max_restarts,
            monitor_interval=args.monitor_interval,
            shutdown_timeout=args.shutdown_timeout,
            logs=_logs(args, shown),
            preload=preload,
        )
        return Agent(job).run()


@contextmanager
def _kept_free(address: str, port: int) -> Iterator[int]:
    """`port`, or any for 0, on which a rank may listen, but no other job comes.

    Raises:
        DistNetworkError: another process listens there.
    """
    if port != 0:  # a store says who it is
        TCPStore(address, port, is_master=True, timeout=_STORE_LIMIT)
    [(family, kind, protocol, _, place), *_] = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM
    )
    with socket.socket(family, kind, protocol) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(place)
        yield held.getsockname()[1]


def _check(args: argparse.Namespace) -> None:
    if args.nnodes not in ("1", "1:1"):
        raise ValueError(
            f"--nnodes is {args.nnodes}: the launcher starts ranks on one host only so "
            "far; want 1 or 1:1"
        )
    if args.node_rank != 0:
        raise ValueError(f"--node-rank is {args.node_rank}; with one node it must be 0")
    if args.max_restarts < 0:
        raise ValueError(f"--max-restarts is {args.max_restarts}; want 0 or more")
    if not args.shutdown_timeout >= 0:
        raise ValueError(
            f"--shutdown-timeout is {args.shutdown_timeout}; want seconds, 0 or more"
        )
    if not args.monitor_interval > 0:
        raise ValueError(
            f"--monitor-interval is {args.monitor_interval}; want seconds, above 0"
        )


def _command(args: argparse.Namespace) -> Callable[[int], list[str]]:
    program, rest = args.training_script, args.training_script_args
    if args.no_python and args.module:
        raise ValueError("--no-python and --module exclude each other")
    python = [sys.executable, "-u"]
    if args.run_path:
        start = [*python, "-c", _RUN_PATH, program]
    elif args.no_python:
        start = [program]
    elif args.module:
        check_module(program)  # one error, as of a file
        start = [*python, "-m", program]
    else:
        if program != "-":
            os.stat(program)  # one error, where every rank would tell of its own
        start = [*python, program]
    if getattr(args, "use_env", True):
        return lambda _: [*start, *rest]
    return lambda local_rank: [*start, f"--local-rank={local_rank}", *rest]


def _preload(args: argparse.Namespace) -> Preload | None:
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
    """What Python itself puts first in `sys.path` of a rank."""
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


def _shown_ranks(given: str, num_workers: int) -> frozenset[int]:
    shown = [text.strip() for text in given.split(",") if text]
    if not all(text.isdecimal() and int(text) < num_workers for text in shown):
        raise ValueError(
            f"--local-ranks-filter is {given!r}; want local ranks in "
            f"[0, {num_workers}), with commas"
        )
    return frozenset(map(int, shown))


def _logs(args: argparse.Namespace, shown: frozenset[int]) -> LogSpec:
    directory = args.log_dir
    if not directory and (args.redirects or args.tee):
        directory = tempfile.mkdtemp(prefix="allhands_")
    return LogSpec(directory, args.redirects, args.tee, shown)


def main(args: Sequence[str] | None = None, prog: str = "allhands run") -> int:
    """The command: parse, run; what cannot be done is said in a line on stderr."""
    return start(get_args_parser(prog), args)


def start(parser: argparse.ArgumentParser, args: Sequence[str] | None) -> int:
    """`run` the command line that `parser` reads, with errors as a shell has them."""
    namespace = parser.parse_args(args)
    try:
        return run(namespace)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        sys.stderr.write(f"{parser.prog}: cannot start the ranks: {error}\n")
        return 127 if error.errno == errno.ENOENT else 126
    except RuntimeError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(prog="python -m allhands.run"))
