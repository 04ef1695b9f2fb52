"""Launched: the place of this process in a job that another launcher started.

mpiexec, srun and Kubernetes use their own variables. There is one reader per launcher;
the first reader that finds its variables wins. `allhands run` and torchrun set RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which need no reader.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from allhands.rendezvous.slurm import SlurmTask, read_task

__all__ = ["Launched", "find_launched", "is_alone", "is_plain", "rank_without_size"]

_PLAIN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables that `allhands run`, torchrun and users who start ranks by hand set."""
_INDEX = "JOB_COMPLETION_INDEX"
_POD_PORT = 29500
_OF_OPEN_MPI = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
)
_OF_PMI = ("PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "MPI_LOCALRANKID")
_RANKS_ONLY = ("PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "ALPS_APP_PE")
"""Variables that launchers set for a rank; MPI may have to give the number of ranks."""
_HYDRAS_PROXY = "hydra_pmi_proxy"

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Launched:
    """A rank of a launcher's job; unknown fields are -1, empty, or port 0."""

    launcher: str
    rank: int
    size: int
    job: str
    """Distinguishes this start of the job from all others of this user on this host."""
    local_rank: int = -1
    """The rank among the ranks of its host."""
    local_size: int = -1
    host: str = ""
    """The host at which others reach rank 0; `port` is its port."""
    port: int = 0

    @property
    def is_on_one_host(self) -> bool:
        """Whether all ranks are certainly on one host."""
        return self.local_size == self.size

    def show(self, environment: MutableMapping[str, str]) -> None:
        """Set RANK and similar variables, for the program and others that read them.

        Variables that are set already do not change.
        """
        found = {"RANK": self.rank, "WORLD_SIZE": self.size}
        if self.local_rank >= 0:
            found["LOCAL_RANK"] = self.local_rank
        if self.local_size > 0:
            found["LOCAL_WORLD_SIZE"] = self.local_size
        for name, number in found.items():
            environment[name] = environment.get(name) or str(number)


def find_launched(environment: Environment) -> Launched | None:
    """Return what a launcher's variables say; None if there are none.

    Raises:
        ValueError: the variables are incomplete or inconsistent.
    """
    for read in _READERS:
        found = read(environment)
        if found is not None:
            if not 0 <= found.rank < found.size:
                raise ValueError(
                    f"{found.launcher} says that this process is rank {found.rank} of "
                    f"{found.size}; the rank must be in [0, {found.size})"
                )
            return found
    return None


def is_plain(environment: Environment) -> bool:
    """Return whether all plain variables are set, so that no launcher's are needed."""
    return all(environment.get(name) for name in _PLAIN)


def is_alone(environment: Environment) -> bool:
    """Return whether nothing says that this process is a rank of a job."""
    is_told = any(environment.get(name) for name in _PLAIN)
    if is_told or find_launched(environment) is not None:
        return False
    return not rank_without_size(environment)


def rank_without_size(environment: Environment) -> str:
    """Return the variable that gives a rank but no number of ranks, or ""."""
    for name in _RANKS_ONLY:
        if _number(environment, name) >= 0 and find_launched(environment) is None:
            return f"{name}={environment[name]}"
    return ""


def _by_open_mpi(environment: Environment) -> Launched | None:
    size = _number(environment, "OMPI_COMM_WORLD_SIZE")
    rank = _number(environment, "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
    if size < 1 or rank < 0:
        return None
    namespace = environment.get("PMIX_NAMESPACE", "")
    return Launched(
        "mpiexec",
        rank,
        size,
        namespace or _starter(environment, _OF_OPEN_MPI),
        _number(environment, "OMPI_COMM_WORLD_LOCAL_RANK"),
        _number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE"),
    )


def _by_pmi(environment: Environment) -> Launched | None:
    """Read the variables of Hydra, MPICH's launcher, and of similar launchers."""
    rank, size = _number(environment, "PMI_RANK"), _number(environment, "PMI_SIZE")
    if size < 1 or rank < 0:
        return None
    local_rank = _number(environment, "MPI_LOCALRANKID", "PMI_LOCAL_RANK")
    task = read_task(environment)
    if local_rank < 0 and task is not None and (task.rank, task.size) == (rank, size):
        return None  # srun sets these, too; its own variables say more
    return Launched(
        "mpiexec",
        rank,
        size,
        _starter(environment, _OF_PMI),
        local_rank,
        _number(environment, "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
    )


def _by_slurm(environment: Environment) -> Launched | None:
    task: SlurmTask | None = read_task(environment)
    if task is None:
        return None
    return Launched(
        "srun",
        task.rank,
        task.size,
        task.step,
        task.local_rank,
        task.local_size,
        task.first_node,
        task.port,
    )


def _by_kubernetes(environment: Environment) -> Launched | None:
    """Read the index of a pod of an Indexed Job."""
    index = _number(environment, _INDEX)
    if index < 0:
        return None
    size = _number(environment, "WORLD_SIZE")
    if size < 1:
        raise ValueError(
            f"Kubernetes says by {_INDEX} that this pod has index {index}, but not how "
            f"many there are: set WORLD_SIZE in the pod's template to the job's "
            f"`completions`"
        )
    host = _first_pod(index, socket.getfqdn())
    return Launched("Kubernetes", index, size, "", 0, 1, host, _POD_PORT)


def _first_pod(index: int, name: str) -> str:
    """Return the name of pod 0, derived from this pod's; empty if this is impossible.

    A pod is called JOB-INDEX, and with a headless service JOB-INDEX.SERVICE...
    """
    host, dot, domain = name.partition(".")
    base = host.removesuffix(f"-{index}")
    return "" if base == host else f"{base}-0{dot}{domain}"


_READERS: tuple[Callable[[Environment], Launched | None], ...] = (
    _by_open_mpi,
    _by_pmi,
    _by_slurm,
    _by_kubernetes,
)


def _number(environment: Environment, *names: str) -> int:
    """Return the first of these variables that is a number; else -1."""
    for name in names:
        text = environment.get(name, "")
        if text.isdecimal():
            return int(text)
    return -1


def _starter(environment: Environment, marks: tuple[str, ...]) -> str:
    """Return the process that started this host's ranks: the first that is no rank.

    Shells and similar processes may be between that process and this one; they have the
    `marks` of the rank, too. A launcher that a rank of a job called has the marks of
    that rank.
    """
    own = [environment.get(mark) for mark in marks]
    pid, is_rank = os.getpid(), True
    while is_rank and (parent := int(_fields_of(pid)[1])):  # 0: outside the container
        pid, theirs = parent, _environment_of(parent)
        is_rank = [theirs.get(mark) for mark in marks] == own
        is_rank = is_rank and _name_of(pid) != _HYDRAS_PROXY
    return f"{pid}.{_fields_of(pid)[19]}"


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().removesuffix("\n")


def _fields_of(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: the state, the parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _environment_of(pid: int) -> Environment:
    """Return the environment at its start; empty for a process of another user."""
    try:
        text = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes())
    except PermissionError:
        return {}
    items = (item.partition("=") for item in text.split("\0"))
    return {name: value for name, _, value in items}
