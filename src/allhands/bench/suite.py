"""All cells on all peers: a job per peer and number of ranks, and nothing left over."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from allhands import settings
from allhands.bench.cells import Cell
from allhands.bench.job import Job
from allhands.bench.measure import Effort, measure
from allhands.bench.results import Result
from allhands.elastic.guard import Guard

__all__ = ["Suite"]


@dataclass
class Suite:
    """What is to be measured: `cells` by number of ranks, on `peers`, ours first.

    `tell` hears of each cell and peer before a block of it runs.
    """

    cells: dict[int, list[Cell]]
    peers: Sequence[str]
    effort: Effort
    tell: Callable[[Cell, str], None]

    def run(self, versions: dict[str, str]) -> Generator[list[Result], None, None]:
        """The results of all peers, cell by cell; adds to `versions` what ranks say.

        Raises:
            JobError: a rank died, failed or got a wrong result.
        """
        for ranks, cells in self.cells.items():
            with _jobs(self.peers, ranks) as jobs:
                for job in jobs:
                    versions.update(job.versions)
                for cell in cells:
                    yield measure(cell, jobs, self.effort, self._teller(cell))

    def _teller(self, cell: Cell) -> Callable[[Job], None]:
        return lambda job: self.tell(cell, job.peer)


def _place_of_sockets() -> str:
    """The usual temporary folder; another one where a socket's path gets too long.

    unix(7): 107 bytes at most, of which ours takes up to 40.
    """
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) < 68 else "/tmp"


@contextmanager
def _jobs(peers: Sequence[str], ranks: int) -> Iterator[list[Job]]:
    """The ranks of every peer, connected; afterwards no process of theirs is left."""
    mark = secrets.token_hex(16)
    environment = {**os.environ, settings.job_mark.name: mark}
    guard = Guard(settings.job_mark.name, mark)
    jobs: list[Job] = []
    is_failed = True
    try:
        with tempfile.TemporaryDirectory(
            prefix="allhands_bench_", dir=_place_of_sockets()
        ) as parent:
            for peer in peers:
                folder = Path(parent, peer)
                folder.mkdir()
                jobs.append(Job(peer, ranks, folder, environment))
                with guard.starting():
                    jobs[-1].start()
            for job in jobs:
                job.connect()
            yield jobs
            is_failed = False
    finally:
        for job in jobs:
            job.leave()
        for job in jobs:
            job.close(is_failed)
        guard.sweep()
