"""Starting ranks from a Python program, as torch.distributed.launcher.api has it.

It is the launcher of `allhands run`: the same agent, store, output and ends. Where the
command has an exit code, a program gets results or an exception.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from allhands.elastic.agent import Outcome
from allhands.elastic.failure import signal_name
from allhands.elastic.logs import DefaultLogsSpecs, Std
from allhands.elastic.multiprocessing import SignalException
from allhands.elastic.multiprocessing.errors import ChildFailedError
from allhands.elastic.process_failure import process_failure
from allhands.elastic.signals import parse_signals
from allhands.errors import DistBackendError
from allhands.launcher.function import RemoteFunction, check_not_importing, name_of
from allhands.launcher.launching import Launch, check_numbers, seconds_to_end
from allhands.launcher.node_options import (
    KNOWN_BACKENDS,
    NodeOptions,
    limit_of,
    split_endpoint,
)

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]

_START_METHODS = ("spawn", "forkserver")
# The default of torch.
_MEETING_LIMIT = 900


@dataclass
class LaunchConfig:
    """What `elastic_launch` starts, and how. Names and defaults are torch's.

    ```python
    from allhands.launcher import LaunchConfig

    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=4, max_restarts=0)
    ```

    Three fields are accepted and have no effect: `metrics_cfg` and `event_log_handler`
    are about reports of torch's agent, and `local_addr` is found out. `numa_options`
    has to be None.
    """

    min_nodes: int
    """The number of nodes, as `max_nodes`: it is fixed while a job runs."""
    max_nodes: int
    nproc_per_node: int
    """Ranks of this node."""
    logs_specs: DefaultLogsSpecs | None = None
    """Which output goes to files. None: all is shown, behind its rank."""
    run_id: str = ""
    """Empty: a random one, or node 0's."""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    """`host:port` of node 0's store. With one node it is where programs meet, if the
    backend is static; else it is ignored."""
    rdzv_backend: str = "etcd"
    """With several nodes it must be static. With one node the others have no effect."""
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    """`rank`: the number of this node; `timeout`: seconds that nodes wait for each
    other (default 900). Other keys have no effect."""
    rdzv_timeout: int = -1
    """The older way to give `timeout`; -1: not given."""
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    """How ranks with a function start: spawn, or forkserver, which means the same here.
    Each of them is a new process. A program is always started as itself."""
    log_line_prefix_template: str | None = None
    """What begins each line of a rank; `${role_name}`, `${rank}` and `${local_rank}` in
    it are replaced. None: its rank, as `[rank0] `."""
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: None = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    """Signals to this process that end the ranks and the job."""
    duplicate_stdout_filters: list[str] | None = None
    """Lines of stdout with one of these also go to one file, on ranks where
    `logs_specs.tee` has stdout."""
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    """Whether LOCAL_RANK is 0, and CUDA_VISIBLE_DEVICES the rank's own GPU."""
    shutdown_timeout: float | None = None
    """Seconds that ranks get to end before they are killed. None: what the variable
    `TORCH_ELASTIC_SHUTDOWN_TIMEOUT` says, or 30."""

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.rdzv_configs.setdefault("timeout", _MEETING_LIMIT)
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()
        self.shutdown_timeout = seconds_to_end(self.shutdown_timeout)


class elastic_launch:
    """Starts ranks, and returns their results once all have ended.

    `elastic_launch(config, entrypoint)(*args)` starts `config.nproc_per_node` ranks on
    this node. Each rank gets the same environment variables as under `allhands run`.
    This process serves the job's store and takes no part as a rank.

    ```python
    import allhands as dist
    from allhands.launcher import LaunchConfig, elastic_launch


    def square(x):
        dist.init_process_group()
        return dist.get_rank(), x * x


    if __name__ == "__main__":  # each rank imports this module
        results = elastic_launch(LaunchConfig(1, 1, 2), square)(7)
        assert results == {0: (0, 49), 1: (1, 49)}
    ```
    """

    def __init__(
        self, config: LaunchConfig, entrypoint: Callable[..., Any] | str
    ) -> None:
        """Remember what to start.

        Args:
            config: how many ranks, and how they run.
            entrypoint: a function that can be pickled, that is one at the top level of
                a module; or a program. This Python runs a path that ends in `.py`.
        """
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        """Run the ranks; see `launch_agent`."""
        return launch_agent(self._config, self._entrypoint, list(args))


def launch_agent(
    config: LaunchConfig, entrypoint: Callable[..., Any] | str, args: Sequence[Any]
) -> dict[int, Any]:
    """Run `entrypoint` with `args` on all ranks of this node; return their results.

    It returns once all ranks of the job have ended, on all nodes, and nothing that they
    started is left. Signals to this process go to the ranks meanwhile, if this is the
    main thread.

    Returns:
        Global rank to what the function returned, for the ranks of this node; None for
        ranks of a program.

    Raises:
        ChildFailedError: ranks of this node failed, after all restarts.
        DistBackendError: ranks of another node failed, or a node was lost.
        SignalException: a signal to a launcher of the job ended it.
        TypeError: `entrypoint` is neither a function nor a text.
        ValueError: `config` cannot be used, or the function cannot be pickled.
        RuntimeError: a rank calls it while it imports the program, because the program
            does so without `if __name__ == "__main__":`.
        DistNetworkError: the store cannot listen, or nodes do not come.
        OSError: the ranks cannot be started.
    """
    check_not_importing()
    nodes = _node_options(config)
    _check(config, entrypoint)
    with ExitStack() as stack:
        if isinstance(entrypoint, str):
            name, remote = entrypoint, None
            command, inherited = _command(entrypoint, args), None
        else:
            name, num_ranks = name_of(entrypoint), config.nproc_per_node
            remote = stack.enter_context(RemoteFunction(entrypoint, args, num_ranks))
            command, inherited = remote.command, remote.inherited
        launch = _launch(config, nodes, command, inherited)
        outcome = launch.run(tells_end=False)
        _check_end(name, outcome)
        return {
            outcome.first_rank + rank: remote.result(rank) if remote else None
            for rank in range(config.nproc_per_node)
        }


def _command(program: str, args: Sequence[Any]) -> Callable[[int], list[str]]:
    start = [sys.executable, "-u"] if program.endswith(".py") else []
    if start:
        os.stat(program)  # one error here instead of one from every rank
    return lambda _: [*start, program, *map(str, args)]


def _launch(
    config: LaunchConfig,
    nodes: NodeOptions,
    command: Callable[[int], Sequence[str]],
    inherited: Callable[[int], Sequence[int]] | None,
) -> Launch:
    return Launch(
        command=command,
        inherited=inherited,
        num_workers=config.nproc_per_node,
        nodes=nodes,
        run_id=config.run_id,
        role=config.role,
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        shutdown_timeout=seconds_to_end(config.shutdown_timeout),
        logs=config.logs_specs or DefaultLogsSpecs(),
        filters={
            Std.OUT: config.duplicate_stdout_filters or [],
            Std.ERR: config.duplicate_stderr_filters or [],
        },
        line_prefix_template=config.log_line_prefix_template or "",
        virtual_local_rank=config.virtual_local_rank,
        ending_signals=_ending_signals(config),
    )


def _ending_signals(config: LaunchConfig) -> Sequence[signal.Signals]:
    try:
        return parse_signals(config.signals_to_handle)
    except ValueError as error:
        raise ValueError(f"LaunchConfig.signals_to_handle: {error}") from None


def _check(config: LaunchConfig, entrypoint: object) -> None:
    if not (isinstance(entrypoint, str) or callable(entrypoint)):
        raise TypeError(
            f"entrypoint is {entrypoint!r}; want a function, or the path of a program"
        )
    if config.nproc_per_node < 1:
        raise ValueError(
            f"LaunchConfig.nproc_per_node is {config.nproc_per_node}; want 1 or more"
        )
    if config.numa_options is not None:
        raise ValueError(
            f"LaunchConfig.numa_options is {config.numa_options!r}; want None: this "
            "launcher does not know which CPUs are beside a GPU. A rank can bind "
            "itself with os.sched_setaffinity"
        )
    if config.start_method not in _START_METHODS:
        raise ValueError(
            f"LaunchConfig.start_method is {config.start_method!r}; want one of "
            f"{', '.join(_START_METHODS)}: each rank is a new process"
        )
    check_numbers(config, lambda name: f"LaunchConfig.{name}")


def _node_options(config: LaunchConfig) -> NodeOptions:
    """Return what the configuration says of the nodes."""
    fewest, most = config.min_nodes, config.max_nodes
    if not 1 <= fewest == most:
        raise ValueError(
            f"LaunchConfig.min_nodes and max_nodes are {fewest} and {most}; want the "
            "same number twice, from 1 up: a job has as many nodes from its start to "
            "its end"
        )
    is_static = config.rdzv_backend == "static"
    if most > 1:
        _check_several(config, is_static)
    elif config.rdzv_backend not in KNOWN_BACKENDS:
        raise ValueError(
            f"LaunchConfig.rdzv_backend is {config.rdzv_backend!r}; want one of "
            f"{', '.join(KNOWN_BACKENDS)}"
        )
    address, port = "", 0
    if is_static:
        address, port = split_endpoint(config.rdzv_endpoint)
    return NodeOptions(
        num_nodes=most,
        node_rank=int(config.rdzv_configs.get("rank", 0)) if most > 1 else 0,
        address=address.strip("[]") or "127.0.0.1",
        port=port,
        limit=_limit(config),
    )


def _check_several(config: LaunchConfig, is_static: bool) -> None:
    """Check that the configuration says where several nodes meet."""
    num_nodes = config.max_nodes
    if not is_static or not split_endpoint(config.rdzv_endpoint)[1]:
        raise ValueError(
            f"LaunchConfig.rdzv_backend is {config.rdzv_backend!r} and rdzv_endpoint "
            f"{config.rdzv_endpoint!r}; with {num_nodes} nodes want 'static' and "
            "'host:port' of node 0"
        )
    rank = config.rdzv_configs.get("rank")
    if not (str(rank).isdecimal() and int(str(rank)) < num_nodes):
        raise ValueError(
            f"LaunchConfig.rdzv_configs has rank {rank!r}; with {num_nodes} nodes want "
            f"the number of this node, in [0, {num_nodes})"
        )


def _limit(config: LaunchConfig) -> float:
    """Return how long nodes wait for each other, in seconds."""
    if config.rdzv_timeout != -1:
        return limit_of(config.rdzv_timeout, "LaunchConfig.rdzv_timeout")
    given = config.rdzv_configs.get("timeout", _MEETING_LIMIT)
    return limit_of(given, "LaunchConfig.rdzv_configs")


def _check_end(name: str, outcome: Outcome) -> None:
    """Raise what ended the job, unless all ranks returned 0."""
    if outcome.ended_by:
        text = f"{name} ended by {signal_name(outcome.ended_by)} to the launcher"
        number = signal.Signals(outcome.ended_by)
        raise SignalException("\n".join([text, *outcome.lines]), number)
    if outcome.failures:
        failures = {f.rank: process_failure(f) for f in outcome.failures}
        raise ChildFailedError(name, failures, outcome.lines)
    if outcome.exit_code:
        raise DistBackendError("\n".join([f"{name} failed", *outcome.lines]))
