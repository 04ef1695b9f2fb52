"""JobView: the ranks of a world as one of them sees them.

It reads what the ranks are doing in their flight memory, which disturbs no rank. It
asks for their records by SIGUSR2. Both cover only the ranks of this host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from allhands.debug.asking import ask_ranks
from allhands.debug.dumps import Dump
from allhands.debug.job_record import JobRecord
from allhands.debug.record import told_now
from allhands.debug.top.jobs import jobs
from allhands.debug.top.row import RankRow, row_of_dead
from allhands.debug.top.watch import Watch
from allhands.elastic.records import limit_of
from allhands.groups.world import World
from allhands.rendezvous.identity import Identity, is_alive, process_identity

__all__ = ["JobView"]

_LOOKING_S = 1.0  # for shares of the time


class JobView:
    """See the module; any thread may use it."""

    def __init__(
        self,
        world: World,
        rank: int,
        size: int,
        ranks: Mapping[int, Identity],
        mark: str,
        limit: float,
    ) -> None:
        """Make the view of one rank.

        Args:
            world: the world of the rank.
            rank: the rank.
            size: the number of ranks.
            ranks: the processes of known ranks.
            mark: distinguishes ranks of this world from those of others.
            limit: seconds that ranks have to answer; more if many share a CPU.
        """
        self.rank, self.size = rank, size
        self._world, self._ranks = world, ranks
        self._mark, self._limit = mark, limit

    def record(self) -> JobRecord:
        """Return the current records of this host's ranks, and why others have none."""
        told = told_now(self._world, "asked for")
        # While the world is being made, the record does not know the rank yet.
        told = {**told, "rank": self.rank, "world_size": self.size}
        others = {rank: each for rank, each in self._ranks.items() if rank != self.rank}
        host = process_identity().host
        num_here = sum(each.host == host for each in others.values())
        answers = ask_ranks(others, limit_of(num_here, self._limit))
        dumps = sorted([Dump.of(told), *answers.dumps], key=lambda dump: dump.rank)
        return replace(answers, dumps=dumps)

    def rows(self) -> list[RankRow]:
        """Return what each rank of this host did in the last second.

        For a rank that has ended, the row says so.
        """
        host = process_identity().host
        found = jobs([each.pid for each in self._ranks.values() if each.host == host])
        here = found.pop(self._mark, [])
        for each in (each for others in found.values() for each in others):
            each.file.close()
        if not here:
            return []
        with Watch(here) as watch:
            watch.look_for(_LOOKING_S)
            seen = {row.rank: row for row in watch.rows()}
        for rank, process in self._ranks.items():
            if process.host == host and rank not in seen and not is_alive(process):
                seen[rank] = row_of_dead(rank, process.pid, watch.host)
        return [seen[rank] for rank in sorted(seen)]
