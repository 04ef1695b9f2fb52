"""SlurmTask: what srun says about a task, in its variables.

For several nodes srun gives their names in a short form, and the number of tasks on
each node, but no port. The port is derived from the numbers of job and step, which all
tasks know.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SlurmTask", "expand_counts", "expand_nodes", "read_task"]

# Steps of other kinds have the highest numbers: a batch script, an interactive shell.
_FIRST_NO_STEP = 0xFFFFFFF0
# Below the ports that Linux gives to outgoing connections.
_FIRST_PORT, _NUM_PORTS = 12_000, 16_384
_MOST_NODES = 1 << 20


@dataclass(frozen=True)
class SlurmTask:
    """A task of a step that srun has started."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    """The number of tasks on its node."""
    step: str
    """The job, the step, and which start of it this is."""
    first_node: str
    """The host of rank 0; empty if it is not given."""
    port: int
    """Derived from `step`."""


def read_task(environment: Mapping[str, str]) -> SlurmTask | None:
    """Return this task of srun; None in a process that srun did not start.

    Raises:
        ValueError: a list of nodes or of tasks is not valid.
    """
    numbers = [
        _number(environment, *names)
        for names in (
            ("SLURM_PROCID",),
            ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
            ("SLURM_JOB_ID", "SLURM_JOBID"),
            ("SLURM_STEP_ID", "SLURM_STEPID"),
        )
    ]
    rank, size, job, step = numbers
    if min(numbers) < 0 or size < 1 or step >= _FIRST_NO_STEP:
        return None
    nodes = _text(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
    restarts = max(_number(environment, "SLURM_RESTART_COUNT"), 0)
    return SlurmTask(
        rank=rank,
        size=size,
        local_rank=_number(environment, "SLURM_LOCALID"),
        local_size=_local_size(environment),
        step=f"{job}.{step}.{restarts}",
        first_node=expand_nodes(nodes)[0] if nodes else "",
        port=_FIRST_PORT + (job * 61 + step * 7 + restarts) % _NUM_PORTS,
    )


def expand_nodes(text: str) -> list[str]:
    """Return the names in Slurm's short form, such as "gpu[08-10,12],login".

    Raises:
        ValueError: `text` is not such a form.
    """
    if not re.fullmatch(
        r"(?:[^\s,\[\]]|\[[^\[\]]*\])+(?:,(?:[^\s,\[\]]|\[[^\[\]]*\])+)*", text
    ):
        raise ValueError(f"Slurm's list of nodes is {text!r}, which is none")
    names: list[str] = []
    for item in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        parts = re.split(r"\[([^\]]*)\]", item)  # every second part was in brackets
        choices = [_range(part) if i % 2 else [part] for i, part in enumerate(parts)]
        names.extend("".join(name) for name in itertools.product(*choices))
        if len(names) > _MOST_NODES:
            raise ValueError(f"Slurm's list of nodes {text!r} has too many")
    return names


def expand_counts(text: str) -> list[int]:
    """Return the number of tasks on each node: [4, 1, 1] for "4,1(x2)".

    Raises:
        ValueError: `text` is not such a list.
    """
    counts: list[int] = []
    for item in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item)
        if found is None or int(found[2] or 1) > _MOST_NODES:
            raise ValueError(f"Slurm's tasks per node are {text!r}, which is no list")
        counts.extend([int(found[1])] * int(found[2] or 1))
    return counts


def _range(text: str) -> list[str]:
    """Return the numbers and ranges in brackets, with leading zeros."""
    numbers: list[str] = []
    for item in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        last = int(found[2] or found[1]) if found else 0
        if found is None or not int(found[1]) <= last < int(found[1]) + _MOST_NODES:
            raise ValueError(f"Slurm's list of nodes has [{text}], which is no range")
        width = len(found[1])
        numbers.extend(f"{n:0{width}}" for n in range(int(found[1]), last + 1))
    return numbers


def _local_size(environment: Mapping[str, str]) -> int:
    text = _text(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    node = _number(environment, "SLURM_NODEID")
    counts = expand_counts(text) if text else []
    return counts[node] if 0 <= node < len(counts) else -1


def _text(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _number(environment: Mapping[str, str], *names: str) -> int:
    """Return the first of these variables that is set, as a number; else -1."""
    text = _text(environment, *names)
    return int(text) if text.isdecimal() else -1
