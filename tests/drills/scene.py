"""Where a run of a drill takes place: fake hosts, jobs on them, chance by a seed."""

from __future__ import annotations

import contextlib
import pathlib
import random
import tempfile
from collections.abc import Callable, Sequence
from types import TracebackType

from drills.job import Job
from drills.work import WORKS
from harness.fake_hosts import FakeHosts, fake_hosts

# By rank, the number of its host.
PLACEMENTS = [[0, 1], [0, 0, 1], [0, 1, 1], [0, 1, 0, 1], [0, 1, 2], [0, 1, 1, 2]]
# What makes no mismatch on purpose.
KINDS = [kind for kind in WORKS if kind != "mismatch"]

Figures = dict[str, float]
"""What a run has measured, in seconds."""

Drill = Callable[["Scene"], Figures]


class Scene:
    """Of one run; use as a context manager, which ends all that is still there.

    Attributes:
        random: chance, the same for the same drill and seed.
        heartbeat: how long a host may be silent, in seconds.
        sockets: how many carry large data between two ranks; left to chance.
    """

    def __init__(self, drill: str, seed: int, heartbeat: float) -> None:
        self.random = random.Random(f"{drill} {seed}")
        self.heartbeat = heartbeat
        self.sockets = self.random.choice([1, 1, 2, 3])
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self.folder = pathlib.Path(folder)

    def __enter__(self) -> Scene:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def hosts(self, count: int) -> FakeHosts:
        return self._stack.enter_context(fake_hosts(count))

    def job(
        self,
        placement: Sequence[int],
        kind: str,
        *,
        hosts: FakeHosts | None = None,
        dooms: dict[int, str] | None = None,
    ) -> Job:
        """Start one; without `hosts`, on as many as it needs."""
        hosts = hosts or self.hosts(max(placement) + 1)
        job = Job(
            *(hosts, placement, kind, self.folder),
            *(self.heartbeat, self.sockets, dooms),
        )
        self._stack.callback(job.close)
        return job

    def job_at_work(
        self,
        placements: Sequence[Sequence[int]] = PLACEMENTS,
        kinds: Sequence[str] = KINDS,
    ) -> Job:
        """Start one of these and wait until all its ranks are at work."""
        placement, kind = self.random.choice(placements), self.random.choice(kinds)
        job = self.job(placement, kind)
        job.wait_for_all("step")
        return job

    def pick(self, job: Job) -> int:
        """One of its ranks."""
        return self.random.randrange(len(job.ranks))
