"""One launch: a node joins its job, runs its ranks, and knows how they ended.

The command line and `elastic_launch` both come here; they differ in what they make of
the end.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from allhands import settings
from allhands.backends.tuned import find_figures
from allhands.debug.job_record import read_job
from allhands.debug.silent import with_seen
from allhands.debug.verdict import verdict
from allhands.elastic.agent import Agent, Outcome
from allhands.elastic.error_file import ERROR_FILE
from allhands.elastic.joining import Joined, alone, among
from allhands.elastic.logs import DefaultLogsSpecs, Std
from allhands.elastic.node import Node
from allhands.elastic.record_collection import folder_within
from allhands.elastic.signals import ENDING_SIGNALS
from allhands.elastic.visible_gpus import VISIBLE_GPUS, gpu_of
from allhands.elastic.worker_spec import Preload, WorkerSpec
from allhands.launcher.node_options import NodeOptions

__all__ = ["Launch", "check_numbers", "seconds_to_end"]

# Torchrun's, for jobs that do not say how long ranks get to end.
_SHUTDOWN_TIMEOUT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


@dataclass(frozen=True)
class Launch:
    """What one launcher is to start. Immutable; `run` it once."""

    command: Callable[[int], Sequence[str]]
    """Local rank to argument list."""
    num_workers: int
    nodes: NodeOptions = field(default_factory=NodeOptions)
    run_id: str = ""
    """Empty: a random one, or node 0's."""
    role: str = "default"
    max_restarts: int = 0
    monitor_interval: float = 0.1
    shutdown_timeout: float = 30.0
    logs: DefaultLogsSpecs = field(default_factory=DefaultLogsSpecs)
    filters: Mapping[Std, Sequence[str]] = field(default_factory=dict)
    line_prefix_template: str = ""
    virtual_local_rank: bool = False
    ending_signals: Collection[int] = ENDING_SIGNALS
    preload: Preload | None = None
    dumps: str = ""
    """The folder for flight records of a failed attempt; empty: none are kept."""
    inherited: Callable[[int], Sequence[int]] | None = None
    """Local rank to descriptors of this process that it inherits."""

    def run(self, tells_end: bool = True) -> Outcome:
        """Run the ranks to their end, and say how they ended.

        The ranks inherit the environment of this process. If the job has one node and
        ALLHANDS_SECRET is not set, the variable has a secret of the job meanwhile.

        Args:
            tells_end: whether to write on stderr what ended the job. Else the caller
                does it, who has the lines then.

        Raises:
            ValueError: `filters` are for a stream that `logs.tee` has on no rank, there
                are fewer GPUs than ranks that need one, a setting in the environment
                cannot be read, or `logs.log_dir` or `dumps` cannot be written.
            DistNetworkError: the store cannot listen at the address or port that was
                asked for, or cannot be reached there.
            OSError: the program cannot be started.
        """
        self._check()
        if self.num_workers > 1:
            find_figures()
        with (
            _secret_of_its_own(self.nodes.num_nodes == 1),
            self._met() as joined,
            folder_within(self.dumps) as dumps,  # no signal ends this process now
        ):
            error_file = os.environ.get(ERROR_FILE, "")
            spec = self._worker_spec(joined, dumps)
            agent = Agent(
                spec,
                joined.signals,
                joined.nodes,
                _verdict,
                error_file,
                with_seen,
                joined.store,
            )
            outcome = agent.run()
            agent.tell(outcome.lines if tells_end else ())
            return outcome

    def _check(self) -> None:
        settings.check_all()
        if self.virtual_local_rank:
            gpu_of(self.num_workers - 1, os.environ.get(VISIBLE_GPUS))
        ranks = range(self.num_workers)
        for std, words in self.filters.items():
            if words and not any(self.logs.is_teed(rank, std) for rank in ranks):
                name = "stdout" if std is Std.OUT else "stderr"
                raise ValueError(
                    f"filters for {name} are given ({', '.join(words)}), and no rank's "
                    f"{name} goes to a file and to the console: have it there by tee "
                    "(--tee 3)"
                )

    def _met(self) -> AbstractContextManager[Joined]:
        """Join the job: learn its store, and which ranks this node has."""
        nodes = self.nodes
        if nodes.num_nodes == 1:
            return alone(
                nodes.address,
                nodes.port,
                self.num_workers,
                self.run_id,
                self.ending_signals,
            )
        me = Node(
            rank=nodes.node_rank,
            num_nodes=nodes.num_nodes,
            num_workers=self.num_workers,
            role=self.role,
            max_restarts=self.max_restarts,
            run_id=self.run_id,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        ending = self.ending_signals
        return among(nodes.address, nodes.port, me, nodes.limit, ending)

    def _worker_spec(self, joined: Joined, dumps: str) -> WorkerSpec:
        return WorkerSpec(
            command=self.command,
            node_ranks=joined.node_ranks,
            run_id=joined.run_id,
            master_addr=self.nodes.address,
            master_port=joined.master_port,
            store_port=joined.store_port,
            relay=joined.relay,
            role=self.role,
            max_restarts=self.max_restarts,
            monitor_interval=self.monitor_interval,
            shutdown_timeout=self.shutdown_timeout,
            secret=settings.secret.get(),
            logs=_with_folder(self.logs),
            filters=self.filters,
            line_prefix_template=self.line_prefix_template,
            virtual_local_rank=self.virtual_local_rank,
            preload=self.preload,
            dumps=dumps,
            inherited=self.inherited,
        )


@contextmanager
def _secret_of_its_own(is_alone: bool) -> Iterator[None]:
    """Let a job of one node have a secret, if the environment has none for it."""
    name = settings.secret.name
    if not is_alone or name in os.environ:
        yield
        return
    os.environ[name] = secrets.token_hex(32)
    try:
        yield
    finally:
        os.environ.pop(name, None)


def seconds_to_end(given: float | None) -> float:
    """Return how long ranks get to end: as given, or as the environment says, or 30.

    Raises:
        ValueError: the environment has no such number.
    """
    if given is not None:
        return given
    text = os.environ.get(_SHUTDOWN_TIMEOUT) or "30"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not seconds >= 0:
        raise ValueError(f"{_SHUTDOWN_TIMEOUT} is {text!r}; want seconds, 0 or more")
    return seconds


def check_numbers(given: Any, spelled: Callable[[str], str]) -> None:
    """Check the numbers of a command line, or of what stands for one.

    Args:
        given: has them as attributes.
        spelled: gives a number's name as its user has written it.

    Raises:
        ValueError: one is out of its range.
    """
    restarts, limit = given.max_restarts, given.shutdown_timeout
    if restarts < 0:
        raise ValueError(f"{spelled('max_restarts')} is {restarts}; want 0 or more")
    if limit is not None and not limit >= 0:
        raise ValueError(
            f"{spelled('shutdown_timeout')} is {limit}; want seconds, 0 or more"
        )
    if not given.monitor_interval > 0:
        raise ValueError(
            f"{spelled('monitor_interval')} is {given.monitor_interval}; want seconds, "
            "above 0"
        )


def _with_folder(logs: DefaultLogsSpecs) -> DefaultLogsSpecs:
    """Make the folder for the files that they want; a new one, if they name none.

    Raises:
        ValueError: no file can be made in the folder that they name.
    """
    if not (logs.redirects or logs.tee):
        return logs
    if not logs.log_dir:
        return replace(logs, log_dir=tempfile.mkdtemp(prefix="allhands_"))
    try:
        os.makedirs(logs.log_dir, exist_ok=True)
        with tempfile.TemporaryFile(dir=logs.log_dir):
            return logs
    except OSError as error:
        raise ValueError(
            f"--log-dir is {logs.log_dir!r}: no file can be made there: "
            f"{error.strerror}; want a folder that can be written, or a new one"
        ) from None


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
