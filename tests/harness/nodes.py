"""A job of several nodes, all on this machine: one launcher each."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from harness.launcher import environment
from harness.ports import reserved_port
from harness.ranks import LIMIT


class Ended(NamedTuple):
    """How a node's launcher ended."""

    code: int
    stdout: str
    stderr: str


class Nodes:
    """Launchers under way; `nodes` are their processes."""

    def __init__(self, nodes: list[subprocess.Popen[str]]) -> None:
        self.nodes = nodes

    def read_until(self, node: int, text: str) -> str:
        """The next line of a node's stdout that has `text`."""
        stdout = self.nodes[node].stdout
        assert stdout is not None
        for line in stdout:
            if text in line:
                return line.rstrip("\n")
        raise AssertionError(f"node {node}'s output ended before {text!r}")

    def end(self) -> list[Ended]:
        """Wait for all of them."""
        deadline = time.monotonic() + LIMIT
        return [self.end_of(node, deadline) for node in range(len(self.nodes))]

    def end_of(self, node: int, deadline: float | None = None) -> Ended:
        """Wait for one of them."""
        process = self.nodes[node]
        limit = LIMIT if deadline is None else max(0.0, deadline - time.monotonic())
        out, err = process.communicate(timeout=limit)
        return Ended(process.returncode, out, err)


@contextlib.contextmanager
def launched_nodes(
    workers: Sequence[int],
    *arguments: str,
    options: Sequence[Sequence[str]] = (),
    **variables: str,
) -> Iterator[Nodes]:
    """Launch a job; `workers` is the number of ranks by node.

    Args:
        workers: how many ranks each node has.
        *arguments: of every launcher: options, program, its arguments.
        options: those of one node only, by node.
        **variables: for the environment of all launchers.
    """
    started: list[subprocess.Popen[str]] = []
    with reserved_port() as port:
        try:
            for node, num_workers in enumerate(workers):
                own = options[node] if options else ()
                command = [
                    *(sys.executable, "-m", "allhands.run", f"--nnodes={len(workers)}"),
                    *(f"--node-rank={node}", "--master-addr=127.0.0.1"),
                    *(f"--master-port={port}", f"--nproc-per-node={num_workers}"),
                ]
                started.append(
                    subprocess.Popen(
                        [*command, *own, *arguments],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                        env=environment(ALLHANDS_HOST_ID=f"host{node}", **variables),
                    )
                )
            yield Nodes(started)
        finally:
            for process in started:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.communicate(timeout=LIMIT)


def run_nodes(
    workers: Sequence[int], *arguments: str, **options: object
) -> list[Ended]:
    """Run a whole job; how each node ended."""
    with launched_nodes(workers, *arguments, **options) as job:  # type: ignore[arg-type]
        return job.end()
