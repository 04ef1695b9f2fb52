"""Watch: looks at the ranks of a job repeatedly, and reports what they do.

A look costs the ranks a few cache misses, and this process about 30 us per rank. Looks
take at most a twentieth of this process's time: with many ranks there are fewer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Sequence

from allhands.debug.top.figures import Tally
from allhands.debug.top.jobs import WatchedRank, jobs
from allhands.debug.top.looks import Look
from allhands.debug.top.memory import GroupView
from allhands.debug.top.row import Clock, RankRow, row_of
from allhands.elastic.process_state import ProcessState, process_state

__all__ = ["Watch"]

_LOOKS = 5.0  # per second, or less
_SHARE = 20.0  # the pause after a look, as a multiple of its duration
_SEARCHES = 5.0  # seconds between searches for missing ranks, or more
_SHARE_OF_SEARCHES = 100.0


class Watch:
    """Looks at the ranks of one job here; for one thread."""

    def __init__(self, ranks: Sequence[WatchedRank]) -> None:
        self.world = ranks[0].header.world
        self.world_size = ranks[0].header.size
        self.host = ranks[0].header.host
        self._ranks = {each.header.rank: each for each in ranks}
        self._starts = dict[int, int]()
        self._processes = dict[int, ProcessState | None]()
        self._cpu = dict[int, float]()
        self._left = set[int]()
        self._tally, self._clock = Tally(), Clock()
        self._cost = 0.0
        self._last_rows = self._last_search = time.monotonic()
        self._look = self._look_now()
        self.rows()

    @property
    def num_looks(self) -> int:
        """The number of looks from which the next rows have shares of time."""
        return self._tally.num_looks

    @property
    def has_ended(self) -> bool:
        """Whether no rank is left."""
        return self._gone() >= self._ranks.keys()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        for each in self._ranks.values():
            each.file.close()

    def look_for(self, seconds: float) -> None:
        """Look at the ranks for this time, or until none is left."""
        end = time.monotonic() + seconds
        while not self.has_ended and (rest := end - time.monotonic()) > 0:
            time.sleep(min(rest, self.pause()))
            self.look()

    def pause(self) -> float:
        """Return the seconds until the next look; random, out of step with the job."""
        return random.uniform(0.5, 1.5) * max(1 / _LOOKS, _SHARE * self._cost)

    def look(self) -> None:
        """Look at what the ranks are doing."""
        self._look = self._look_now()
        self._tally.add(self._look)

    def _look_now(self) -> Look:
        begin = time.monotonic()
        first = self._views()
        # Without operations under way no rank waits.
        is_quiet = not any(
            any(group.under_way) for groups in first.values() for group in groups
        )
        second = first if is_quiet else self._views()
        found = Look.of(first, second, self._halted() | self._left)
        self._cost = time.monotonic() - begin
        return found

    def _views(self) -> dict[int, Collection[GroupView]]:
        return {rank: each.file.groups() for rank, each in self._ranks.items()}

    def rows(self) -> list[RankRow]:
        """Return a row for each rank, with its figures since the last rows."""
        self._search()
        self._look_at_processes()
        self._look = self._look_now()
        now = time.monotonic()
        seconds, self._last_rows = max(now - self._last_rows, 1e-6), now
        figures = self._tally.figures(dict(self._look.views), seconds)
        return [
            row_of(
                rank,
                self._ranks[rank],
                self._state(rank),
                self._look,
                figures[rank],
                self._cpu_share(rank, seconds),
                self._clock,
            )
            for rank in sorted(self._ranks)
        ]

    def _search(self) -> None:
        """Find ranks that have come since the last search."""
        begin = time.monotonic()
        if len(self._ranks) == self.world_size or begin < self._last_search + _SEARCHES:
            return
        for world, found in jobs().items():
            for each in found:
                if world != self.world or each.header.rank in self._ranks:
                    each.file.close()
                else:
                    self._ranks[each.header.rank] = each
        now = time.monotonic()
        self._last_search = now + _SHARE_OF_SEARCHES * (now - begin)

    def _look_at_processes(self) -> None:
        for rank, each in self._ranks.items():
            told = process_state(each.pid)
            if told and self._starts.setdefault(rank, told.start) != told.start:
                told = None  # another process with its number
            self._processes[rank] = told
            header = each.file.header()
            if header is not None and header.world != self.world:
                self._left.add(rank)

    def _gone(self) -> set[int]:
        return self._left | {
            rank
            for rank, told in self._processes.items()
            if told is None or told.has_ended
        }

    def _halted(self) -> set[int]:
        return {
            rank
            for rank, told in self._processes.items()
            if told is None or told.has_ended or told.is_stopped
        }

    def _state(self, rank: int) -> str:
        told = self._processes[rank]
        if told is None or told.has_ended:
            return "dead"
        if rank in self._left:
            return "left"
        return "stopped" if told.is_stopped else ""

    def _cpu_share(self, rank: int, seconds: float) -> float:
        """Return the CPUs that it used; 0 if this is not known yet."""
        told = self._processes[rank]
        if told is None:
            return 0.0
        before = self._cpu.get(rank, told.cpu_seconds)
        self._cpu[rank] = told.cpu_seconds
        return max(0.0, told.cpu_seconds - before) / seconds
