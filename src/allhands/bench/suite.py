"""All cells on all peers: one job per peer and number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from allhands.bench.cells import Cell
from allhands.bench.fake_hosts import FakeHosts
from allhands.bench.job import Job
from allhands.bench.jobs import started
from allhands.bench.measure import Effort, measure
from allhands.bench.results import Result

__all__ = ["Suite"]


@dataclass
class Suite:
    """What is to be measured: `cells` by number of ranks, on `peers`, ours first.

    `tell` is called with a cell and a peer before each block. With more than one of
    `num_hosts`, all ranks run on fake hosts.
    """

    cells: dict[int, list[Cell]]
    peers: Sequence[str]
    effort: Effort
    tell: Callable[[Cell, str], None]
    num_hosts: int = 1

    def run(self, versions: dict[str, str]) -> Generator[list[Result], None, None]:
        """Yield the results of all peers, cell by cell; ranks add to `versions`.

        Raises:
            JobError: a rank died, failed or got a wrong result.
            OSError: fake hosts cannot be made here.
        """
        kinds: list[tuple[str, dict[str, str]]] = [(peer, {}) for peer in self.peers]
        for ranks, cells in self.cells.items():
            with self._hosts() as hosts, started(kinds, ranks, hosts) as jobs:
                if hosts is not None:
                    versions["TCP"] = hosts[0].congestion_control
                for job in jobs:
                    versions.update(job.versions)
                for cell in cells:
                    yield measure(cell, jobs, self.effort, self._teller(cell))

    def _hosts(self) -> AbstractContextManager[FakeHosts | None]:
        return FakeHosts(self.num_hosts) if self.num_hosts > 1 else nullcontext()

    def _teller(self, cell: Cell) -> Callable[[Job], None]:
        return lambda job: self.tell(cell, job.peer)
