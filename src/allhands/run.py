"""`allhands run`, `python -m allhands.run`: one command starts all ranks of a program.

It takes torchrun's options and sets torchrun's environment variables. This module turns
a command line into a launch, and its end into an exit code; `allhands.launcher` has the
parts, and `allhands.elastic` runs the ranks. See docs/howto/launch.md.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence

from allhands import settings
from allhands.elastic.filtered_log import parse_words
from allhands.elastic.logs import DefaultLogsSpecs, Std
from allhands.elastic.streams import prepare_streams
from allhands.launcher.api import LaunchConfig
from allhands.launcher.launching import Launch, check_numbers, seconds_to_end
from allhands.launcher.node_options import node_options_of
from allhands.launcher.num_ranks import determine_local_world_size
from allhands.launcher.options import get_args_parser
from allhands.launcher.program import command_of, preload_of

__all__ = [
    "config_from_args",
    "determine_local_world_size",
    "get_args_parser",
    "main",
    "parse_args",
    "run",
]


# Torchrun's: it has no option for it.
_LINE_PREFIX = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """Read a command line (default: this process's)."""
    return get_args_parser().parse_args(args)


def run(args: argparse.Namespace) -> int:
    """Run the program that `args` describe; returns the launcher's exit code.

    If `args` ask for it, it sets ALLHANDS_REPLACE_GLOO in the environment of this
    process, which the ranks inherit.

    Raises:
        ValueError: an option's value cannot be used.
        DistNetworkError: the store cannot listen on the requested address or port, or
            cannot be reached there.
        OSError: the program cannot be started.
    """
    launch = _launch(args)
    if args.replace_gloo:
        os.environ[settings.replace_gloo.name] = "1"
    return launch.run().exit_code


def config_from_args(
    args: argparse.Namespace,
) -> tuple[LaunchConfig, str, list[str]]:
    """Return what `elastic_launch` needs for the job that `args` describe.

    ```python
    from allhands.launcher import elastic_launch
    from allhands.run import config_from_args, parse_args

    config, program, arguments = config_from_args(parse_args())
    config.max_restarts = 3
    elastic_launch(config, program)(*arguments)
    ```

    Raises:
        ValueError: an option's value cannot be used, or a `LaunchConfig` has no field
            for it: --preload, --dumps, --replace-gloo, and ranks that get --local-rank.
        OSError: there is no such program or module.
    """
    launch = _launch(args)
    if launch.preload or launch.dumps or args.replace_gloo or _has_own_arguments(args):
        raise ValueError(
            "a LaunchConfig has no field for --preload, --dumps, --replace-gloo, and "
            "ranks that get --local-rank: use run(args)"
        )
    nodes = launch.nodes
    config = LaunchConfig(
        min_nodes=nodes.num_nodes,
        max_nodes=nodes.num_nodes,
        nproc_per_node=launch.num_workers,
        logs_specs=launch.logs,
        run_id=launch.run_id,
        role=launch.role,
        rdzv_endpoint=f"{nodes.address}:{nodes.port}",
        rdzv_backend="static",
        rdzv_configs={"rank": nodes.node_rank, "timeout": nodes.limit},
        max_restarts=launch.max_restarts,
        monitor_interval=launch.monitor_interval,
        log_line_prefix_template=launch.line_prefix_template or None,
        local_addr=args.local_addr or None,
        event_log_handler=args.event_log_handler,
        signals_to_handle=",".join(number.name for number in args.signals_to_handle),
        duplicate_stdout_filters=list(launch.filters[Std.OUT]),
        duplicate_stderr_filters=list(launch.filters[Std.ERR]),
        virtual_local_rank=launch.virtual_local_rank,
        shutdown_timeout=launch.shutdown_timeout,
    )
    program, *arguments = launch.command(0)
    return config, program, arguments


def _has_own_arguments(args: argparse.Namespace) -> bool:
    return not getattr(args, "use_env", True)


def _launch(args: argparse.Namespace) -> Launch:
    """Check the options, and say what they ask for."""
    nodes = node_options_of(args)
    check_numbers(args, _option)
    num_workers = determine_local_world_size(args.nproc_per_node)
    shown = _shown_ranks(args.local_ranks_filter, num_workers)
    return Launch(
        command=command_of(args),
        num_workers=num_workers,
        nodes=nodes,
        run_id=args.rdzv_id,
        role=args.role,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        shutdown_timeout=seconds_to_end(args.shutdown_timeout),
        logs=DefaultLogsSpecs(args.log_dir or None, args.redirects, args.tee, shown),
        filters={
            Std.OUT: parse_words(args.duplicate_stdout_filters),
            Std.ERR: parse_words(args.duplicate_stderr_filters),
        },
        line_prefix_template=os.environ.get(_LINE_PREFIX, ""),
        virtual_local_rank=args.virtual_local_rank,
        ending_signals=args.signals_to_handle,
        preload=preload_of(args),
        dumps=args.dumps,
    )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown_ranks(given: str, num_workers: int) -> frozenset[int]:
    shown = [text.strip() for text in given.split(",") if text]
    if not all(text.isdecimal() and int(text) < num_workers for text in shown):
        raise ValueError(
            f"--local-ranks-filter is {given!r}; want local ranks in "
            f"[0, {num_workers}), with commas"
        )
    return frozenset(map(int, shown))


def main(args: Sequence[str] | None = None, prog: str = "allhands run") -> int:
    """Parse `args` and run the job; report an error in one line on stderr."""
    return start(get_args_parser(prog), args)


def start(parser: argparse.ArgumentParser, args: Sequence[str] | None) -> int:
    """Parse `args` by `parser` and `run` them; errors give a shell's exit codes."""
    prepare_streams()
    namespace = parser.parse_args(args)
    try:
        return run(namespace)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        why = f"{error.strerror}: {error.filename!r}" if error.filename else error
        sys.stderr.write(f"{parser.prog}: cannot start the ranks: {why}\n")
        return 127 if error.errno == errno.ENOENT else 126
    except RuntimeError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    except KeyboardInterrupt:  # no rank has started yet
        sys.stderr.write(f"{parser.prog}: ended by SIGINT\n")
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(prog="python -m allhands.run"))
