"""WorkerSpec: the ranks of one node, their command, and the environment of each.

The variables are those that torchrun sets, so a program written for it runs unchanged.
Nothing here starts a process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Template
from typing import NamedTuple
from urllib.parse import quote

from allhands import settings
from allhands.elastic.error_file import ERROR_FILE
from allhands.elastic.logs import DefaultLogsSpecs, Std
from allhands.elastic.node_ranks import NodeRanks
from allhands.elastic.output import line_prefix
from allhands.elastic.visible_gpus import VISIBLE_GPUS, gpu_of

__all__ = ["Preload", "WorkerSpec"]

_OF_ONE_RANK = ("RANK", "LOCAL_RANK", "ROLE_RANK")


class Preload(NamedTuple):
    """What is loaded once, in a process from which all ranks are forked."""

    modules: Sequence[str]
    first_path: str | None
    """What Python puts first in `sys.path` for the job's command, if it does."""


@dataclass(frozen=True)
class WorkerSpec:
    """What a launcher runs as the ranks of its node. Immutable."""

    command: Callable[[int], Sequence[str]]
    """Local rank to argument list."""
    node_ranks: NodeRanks
    run_id: str
    master_addr: str
    master_port: int
    """Free: rank 0 may host a store of its own there, as torch.distributed does."""
    store_port: int
    """Where the launcher's store listens, at `master_addr`."""
    relay: settings.Relay | None = None
    """Through which the ranks use it; None: they connect to it."""
    role: str = "default"
    max_restarts: int = 0
    monitor_interval: float = 0.1
    """Seconds between looks at the ranks, where the kernel has no pidfd to wait on."""
    shutdown_timeout: float = 30.0
    """Seconds from SIGTERM (or the signal that was passed on) to SIGKILL."""
    secret: str = ""
    """That of the job, for the ranks; empty: what the environment says."""
    logs: DefaultLogsSpecs = field(default_factory=DefaultLogsSpecs)
    dumps: str = ""
    """A folder of this run alone, within that where the files with its flight records
    go; empty: the ranks are not asked for any."""
    filters: Mapping[Std, Sequence[str]] = field(default_factory=dict)
    """Words by stream: its lines with one of them also go to one file for all ranks, on
    ranks where `logs.tee` has the stream."""
    line_prefix_template: str = ""
    """What begins each line of a rank, with ${role_name}, ${rank} and ${local_rank};
    empty: its rank."""
    virtual_local_rank: bool = False
    """Whether each rank sees one GPU, as the first, and LOCAL_RANK 0."""
    preload: Preload | None = None
    """Needs a command that starts Python and is the same on every rank."""
    inherited: Callable[[int], Sequence[int]] | None = None
    """Local rank to descriptors of this process that the rank inherits, under the same
    numbers. Not with `preload`."""

    @property
    def num_workers(self) -> int:
        """How many ranks this node has."""
        return self.node_ranks.num_workers

    def rank(self, local_rank: int) -> int:
        """The number of a rank of this node among all ranks."""
        return self.node_ranks.first_rank + local_rank

    def line_prefix(self, local_rank: int) -> str:
        """What begins each line that a rank of this node writes."""
        rank = self.rank(local_rank)
        if not self.line_prefix_template:
            return line_prefix(rank)
        return Template(self.line_prefix_template).safe_substitute(
            role_name=self.role, rank=rank, local_rank=local_rank
        )

    def environment(
        self, local_rank: int, attempt: int, mark: str, base: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the environment of one rank: `base`, and the variables of torchrun.

        It lacks the file that only the launcher writes to; see `error_file`.
        """
        ranks = self.node_ranks
        environment = {
            **base,
            "RANK": str(self.rank(local_rank)),
            "LOCAL_RANK": str(local_rank),
            "GROUP_RANK": str(ranks.node),
            "ROLE_RANK": str(ranks.first_role_rank + local_rank),
            "ROLE_NAME": self.role,
            "LOCAL_WORLD_SIZE": str(ranks.num_workers),
            "WORLD_SIZE": str(ranks.world_size),
            "GROUP_WORLD_SIZE": str(ranks.num_nodes),
            "ROLE_WORLD_SIZE": str(ranks.role_world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(self.max_restarts),
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "PYTHONUNBUFFERED": "1",  # a line is shown when it is printed
            settings.job_mark.name: mark,
            settings.store.name: str(self._store),
        }
        if self.secret:
            environment[settings.secret.name] = self.secret
        if self.virtual_local_rank:
            environment["LOCAL_RANK"] = "0"
            environment[VISIBLE_GPUS] = gpu_of(local_rank, base.get(VISIBLE_GPUS))
        if self.dumps:
            environment[settings.dumps.name] = self.dump_directory(attempt)
        if self.num_workers > 1:
            # Several ranks share the cores; a thread pool per rank of all cores' size
            # makes every one of them slow.
            environment.setdefault("OMP_NUM_THREADS", "1")
        environment.pop(ERROR_FILE, None)
        return environment

    def shared_environment(
        self, attempt: int, mark: str, base: Mapping[str, str]
    ) -> dict[str, str]:
        """What the environments of all ranks have in common."""
        common = replace(self, virtual_local_rank=False)
        environment = common.environment(0, attempt, mark, base)
        return {k: v for k, v in environment.items() if k not in _OF_ONE_RANK}

    @property
    def _store(self) -> settings.LaunchersStore:
        return settings.LaunchersStore(
            self.master_addr, self.store_port, self.master_port, self.relay
        )

    def dump_directory(self, attempt: int) -> str:
        """Folder of the ranks' flight records, while the job goes on."""
        return os.path.join(self.dumps, f"attempt_{attempt}")

    def dump_file(self, attempt: int) -> str:
        """The file with all of them: `<run-id>_attempt_<n>.json` beside `dumps`."""
        name = f"{self._run_name}_attempt_{attempt}"
        if self.node_ranks.num_nodes > 1:
            name += f"_node_{self.node_ranks.node}"
        return os.path.join(os.path.dirname(self.dumps), f"{name}.json")

    def filtered_file(self, std: Std, attempt: int) -> str:
        """The file for lines with one of `filters`, of all ranks."""
        name = "filtered_stdout.log" if std is Std.OUT else "filtered_stderr.log"
        return os.path.join(self._log_folder(attempt), name)

    def log_directory(self, local_rank: int, attempt: int) -> str:
        """Folder of one rank's log files: `<log-dir>/<run-id>/attempt_<n>/<rank>`.

        Characters of the run's id other than letters, digits and `_.-~` are escaped as
        in a URL.
        """
        return os.path.join(self._log_folder(attempt), str(local_rank))

    def _log_folder(self, attempt: int) -> str:
        return os.path.join(
            self.logs.log_dir or "", self._run_name, f"attempt_{attempt}"
        )

    @property
    def _run_name(self) -> str:
        """The run's id as one part of a path: `/` and `..` lead nowhere else."""
        name = quote(self.run_id, safe="")
        return name if name.strip(".") else name.replace(".", "%2E")
