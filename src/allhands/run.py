"""`allhands run`, `python -m allhands.run`: one command starts all ranks of a program.

It takes torchrun's options and sets torchrun's environment variables. This module reads
the command line and makes the secret of a job with one node; `allhands.elastic` makes
the job's store and runs the ranks. See docs/howto/launch.md.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import secrets
import signal
import socket
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from allhands import settings
from allhands.backends.tuned import find_figures
from allhands.debug.job_record import read_job
from allhands.debug.verdict import verdict
from allhands.elastic import (
    ERROR_FILE,
    Agent,
    Job,
    Joined,
    LogSpec,
    Node,
    Preload,
    Std,
    alone,
    among,
    check_module,
    folder_within,
    parse_std,
)

__all__ = [
    "determine_local_world_size",
    "get_args_parser",
    "main",
    "parse_args",
    "run",
]

# The defaults of torchrun.
_DEFAULT_PORT = 29500
_DEFAULT_LIMIT = "600"
# One node meets no other, so that what torchrun knows changes nothing there.
_BACKENDS = ("static", "c10d", "etcd", "etcd-v2")
_RUN_PATH = (
    "import runpy, sys; del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def get_args_parser(prog: str = "allhands run") -> argparse.ArgumentParser:
    """Return the parser; `PET_<OPTION>` in the environment sets an option's default."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} [options] program [arguments]",
        description="Start a program on several ranks of this host, or of several.",
    )
    add = _Adder(parser)
    add(
        "--nproc-per-node",
        also=("-n", "--nproc"),
        default="1",
        metavar="N",
        help="ranks: a number, auto, cpu or gpu",
    )
    add("--nnodes", default="1", help="nodes: hosts on which this command is run")
    add("--node-rank", type=int, default=0, help="which of them this is, from 0 up")
    add("--standalone", action="store_true", help="accepted: one node always is")
    add("--rdzv-backend", default="static", help="static; unused with one node")
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
    add("--rdzv-id", default="", help="the run's id (default: a random one)")
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
    add("--local-addr", default="", help="accepted, unused")
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
    add(
        "--dumps",
        default="",
        metavar="FOLDER",
        help="where the flight records of a failed attempt go, as one file",
    )
    add("--local-ranks-filter", default="", help="show only these ranks, such as 0,2")
    add("--module", also=("-m",), action="store_true", help="the program is a module")
    add("--no-python", action="store_true", help="run the program itself, no Python")
    add(
        "--replace-gloo",
        action="store_true",
        help="programs that say gloo get this package's own engine",
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
    """Ask CUDA's driver for the number of GPUs, as CUDA_VISIBLE_DEVICES limits it."""
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

    It sets environment variables of this process, which the ranks inherit:
    ALLHANDS_SECRET if the job has one node and the variable is not set yet, and
    ALLHANDS_REPLACE_GLOO if `args` ask for it.

    Raises:
        ValueError: an option's value cannot be used.
        DistNetworkError: the store cannot listen on the requested address or port, or
            cannot be reached there.
        OSError: the program cannot be started.
    """
    num_nodes = _check(args)
    num_workers = determine_local_world_size(args.nproc_per_node)
    shown = _shown_ranks(args.local_ranks_filter, num_workers)
    command = _command(args)
    preload = _preload(args)
    if num_workers > 1:
        find_figures()
    if args.replace_gloo:
        os.environ[settings.replace_gloo.name] = "1"
    with (
        _met(args, num_nodes, num_workers) as meeting,
        folder_within(args.dumps) as dumps,  # a signal ends nothing that needs it now
    ):
        job = Job(
            command=command,
            place=meeting.place,
            run_id=meeting.run_id,
            master_addr=args.master_addr,
            master_port=meeting.master_port,
            store_port=meeting.store_port,
            role=args.role,
            max_restarts=args.max_restarts,
            monitor_interval=args.monitor_interval,
            shutdown_timeout=args.shutdown_timeout,
            logs=_logs(args, shown),
            preload=preload,
            dumps=dumps,
        )
        error_file = os.environ.get(ERROR_FILE, "")
        return Agent(job, meeting.signals, meeting.nodes, _verdict, error_file).run()


def _verdict(path: str) -> str:
    """Return the verdict on the flight records in `path`, or why there is none."""
    try:
        job = read_job([path])
        found = verdict(job.dumps, job.endings)
    except (OSError, ValueError) as error:
        return str(error)
    except Exception as error:  # bad records must not change the exit code
        return f"which are odd, nothing can be told ({type(error).__name__}: {error})"
    return "" if found is None else found.line


def _met(
    args: argparse.Namespace, num_nodes: int, num_workers: int
) -> AbstractContextManager[Joined]:
    """Join the job: its store, and the place of this node in it."""
    address, port, run_id = args.master_addr, args.master_port, args.rdzv_id
    if num_nodes == 1:
        os.environ.setdefault(settings.secret.name, secrets.token_hex(32))
        return alone(address, port, num_workers, run_id)
    me = Node(
        rank=args.node_rank,
        num_nodes=num_nodes,
        num_workers=num_workers,
        role=args.role,
        max_restarts=args.max_restarts,
        run_id=run_id,
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    return among(address, port, me, args.meeting_limit)


def _check(args: argparse.Namespace) -> int:
    """Check that the options are compatible; return the number of nodes."""
    num_nodes = _num_nodes(args.nnodes)
    if not 0 <= args.node_rank < num_nodes:
        want = "0" if num_nodes == 1 else f"a number from 0 to {num_nodes - 1}"
        raise ValueError(
            f"--node-rank is {args.node_rank}; with --nnodes {num_nodes} it must be "
            f"{want}"
        )
    args.meeting_limit = _meeting_limit(args.rdzv_conf)
    if num_nodes > 1:
        _check_meeting_place(args)
    elif not args.standalone and args.rdzv_backend not in _BACKENDS:
        raise ValueError(
            f"--rdzv-backend is {args.rdzv_backend!r}; want one of "
            f"{', '.join(_BACKENDS)}. With one node it has no effect: leave it out"
        )
    args.master_addr = (args.master_addr or "127.0.0.1").strip("[]")
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
    return num_nodes


def _num_nodes(given: str) -> int:
    fewest, colon, most = given.partition(":")
    numbers = [fewest, most] if colon else [fewest]
    if not all(number.isdecimal() and int(number) >= 1 for number in numbers):
        raise ValueError(f"--nnodes is {given!r}; want a number from 1 up")
    if len({int(number) for number in numbers}) > 1:
        raise ValueError(
            f"--nnodes is {given}: a job has as many nodes from its start to its end; "
            f"nodes that come and go are not there yet. Give one number, and each node "
            f"its --node-rank"
        )
    return int(fewest)


def _check_meeting_place(args: argparse.Namespace) -> None:
    """Check that the nodes know where to meet, and fill in the defaults."""
    if args.standalone:
        raise ValueError(f"--standalone and --nnodes {args.nnodes} exclude each other")
    if args.rdzv_backend != "static":
        raise ValueError(
            f"--rdzv-backend is {args.rdzv_backend}; with --nnodes {args.nnodes} want "
            "static, and on each node --node-rank, --master-addr and --master-port"
        )
    if args.rdzv_endpoint and not args.master_addr:
        host, _, port = args.rdzv_endpoint.rpartition(":")
        if not port.isdecimal():
            host, port = args.rdzv_endpoint, "0"
        args.master_addr, args.master_port = host, int(port) or args.master_port
    if not args.master_addr:
        raise ValueError(
            f"--nnodes {args.nnodes} needs --master-addr: a name or address of node "
            "0's host that the other hosts can reach"
        )
    args.master_port = args.master_port or _DEFAULT_PORT


def _meeting_limit(given: str) -> float:
    """Return how long nodes wait for each other, in seconds, from --rdzv-conf."""
    text = _configuration(given).get("timeout", _DEFAULT_LIMIT)
    try:
        limit = float(text)
    except ValueError:
        limit = 0
    if not 0 < limit < float("inf"):
        raise ValueError(f"--rdzv-conf: timeout is {text!r}; want seconds, above 0")
    return limit


def _configuration(given: str) -> dict[str, str]:
    """Return the pairs of --rdzv-conf; torchrun's other keys mean nothing here."""
    if not given.strip():
        return {}
    pairs = [pair.partition("=") for pair in given.split(",")]
    if not all(key.strip() and value.strip() for key, _, value in pairs):
        raise ValueError(
            f"--rdzv-conf is {given!r}; want key=value, with commas between several, "
            "such as timeout=60"
        )
    return {key.strip(): value.strip() for key, _, value in pairs}


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
        check_module(program)  # one error here, as for a missing file
        start = [*python, "-m", program]
    else:
        if program != "-":
            os.stat(program)  # one error here instead of one from every rank
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
    """Parse `args` and run the job; report an error in one line on stderr."""
    return start(get_args_parser(prog), args)


def start(parser: argparse.ArgumentParser, args: Sequence[str] | None) -> int:
    """Parse `args` by `parser` and `run` them; errors give a shell's exit codes."""
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
    except KeyboardInterrupt:  # no rank has started yet
        sys.stderr.write(f"{parser.prog}: ended by SIGINT\n")
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(prog="python -m allhands.run"))
