"""`allhands bench` as a process of its own."""

import subprocess
import sys

from harness.launcher import environment
from harness.ranks import LIMIT


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "allhands", "bench", *options]


def run_bench(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What it gave, with these variables in its environment."""
    return subprocess.run(
        command(*options),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
