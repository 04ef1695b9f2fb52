"""The machine that is measured."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["describe"]


def describe() -> dict[str, Any]:
    """Describe the machine and its state, which the figures depend on."""
    cpu = platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(x.partition(": ")[2] for x in lines if x.startswith("model name"))
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "linux": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }
