"""Programs that start ranks by `elastic_launch`."""

import subprocess
import sys
import textwrap

from harness.launcher import environment, program
from harness.ranks import LIMIT

HEAD = """
    import json, os, signal, sys, threading
    from allhands.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from allhands.elastic.multiprocessing.errors import ChildFailedError
    from allhands.launcher import LaunchConfig, elastic_launch

    def config(num_ranks, **more):
        return LaunchConfig(**{
            "min_nodes": 1, "max_nodes": 1, "nproc_per_node": num_ranks,
            "max_restarts": 0, **more,
        })
"""


def written(folder, functions: str, main: str) -> str:
    """A program with these functions, and `main` below its guard."""
    head, own, below = (textwrap.dedent(part) for part in (HEAD, functions, main))
    guarded = 'if __name__ == "__main__":\n' + textwrap.indent(below, "    ")
    return program(folder, "\n".join([head, own, guarded]))


def run(folder, functions: str, main: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, written(folder, functions, main), "an argument"],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
