"""How often the kernel's out-of-memory killer struck around this process.

The count is that of this process's cgroup (v2 `memory.events`, v1
`memory.oom_control`), or of the whole machine where the cgroup has none.
"""

from __future__ import annotations

import os

__all__ = ["oom_kills"]

_WHOLE_MACHINE = "/proc/vmstat"


def oom_kills(root: str = "/") -> int:
    """Processes killed for lack of memory so far; 0 where the kernel does not count."""
    for path in _counters(root):
        try:
            with open(path) as file:
                for line in file:
                    name, _, count = line.partition(" ")
                    if name == "oom_kill":
                        return int(count)
        except (OSError, ValueError):
            continue
    return 0


def _counters(root: str) -> list[str]:
    """Files that may hold the count, the most precise first."""
    paths = []
    for controllers, path in _cgroups(root):
        if controllers == "":
            paths.append(f"sys/fs/cgroup{path}/memory.events")
            paths.append(f"sys/fs/cgroup/unified{path}/memory.events")
        elif "memory" in controllers.split(","):
            paths.append(f"sys/fs/cgroup/memory{path}/memory.oom_control")
            # Inside a container the path may be the host's, the mount our own.
            paths.append("sys/fs/cgroup/memory/memory.oom_control")
    paths.append("sys/fs/cgroup/memory.events")
    paths.append(_WHOLE_MACHINE.lstrip("/"))
    return [os.path.join(root, path) for path in paths]


def _cgroups(root: str) -> list[tuple[str, str]]:
    try:
        with open(os.path.join(root, "proc/self/cgroup")) as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    return [(row[1], row[2]) for row in rows if len(row) == 3]
