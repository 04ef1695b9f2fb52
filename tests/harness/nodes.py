"""A job of several nodes, one launcher each: on this machine, or on fake hosts."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from harness.fake_hosts import FakeHosts
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
    hosts: FakeHosts | None = None,
    **variables: str,
) -> Iterator[Nodes]:
    """Launch a job; `workers` is the number of ranks by node.

    Args:
        workers: how many ranks each node has.
        *arguments: of every launcher: options, program, its arguments.
        options: those of one node only, by node.
        hosts: one for each node. Without them all are on this machine, and say that
            they are on different hosts.
        **variables: for the environment of all launchers.
    """
    started: list[subprocess.Popen[str]] = []
    address = "127.0.0.1" if hosts is None else hosts[0].address
    with reserved_port() as port:
        try:
            for node, num_workers in enumerate(workers):
                own = options[node] if options else ()
                command = [
                    *(sys.executable, "-m", "allhands.run", f"--nnodes={len(workers)}"),
                    *(f"--node-rank={node}", f"--master-addr={address}"),
                    *(f"--master-port={port}", f"--nproc-per-node={num_workers}"),
                ]
                own_variables = (
                    {"ALLHANDS_SECRET": "of the job"}  # else node 0 warns
                    if hosts
                    else {"ALLHANDS_HOST_ID": f"host{node}"}
                )
                started.append(
                    subprocess.Popen(
                        hosts[node].enter(*command, *own, *arguments)
                        if hosts
                        else [*command, *own, *arguments],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                        env=environment(**(own_variables | variables)),
                    )
                )
            yield Nodes(started)
        finally:
            for process in started:
                process.send_signal(signal.SIGCONT)
                process.kill()
            for process in started:
                # What is left of it on a fake host ends with that.
                for stream in (process.stdout, process.stderr):
                    assert stream is not None
                    stream.close()
                process.wait(LIMIT)


def run_nodes(
    workers: Sequence[int], *arguments: str, **options: object
) -> list[Ended]:
    """Run a whole job; how each node ended."""
    with launched_nodes(workers, *arguments, **options) as job:  # type: ignore[arg-type]
        return job.end()
