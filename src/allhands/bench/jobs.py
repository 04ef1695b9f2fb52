"""Jobs that run side by side, in turn, and of which nothing is left over."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from allhands import settings
from allhands.bench.fake_hosts import INTERFACE, FakeHosts
from allhands.bench.job import Job
from allhands.elastic.guard import Guard

__all__ = ["started"]


def _place_of_sockets() -> str:
    """The usual temporary folder; another one where a socket's path gets too long.

    unix(7): 107 bytes at most, of which ours takes up to 40.
    """
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) < 68 else "/tmp"


# What they name is this machine's, of which fake hosts have nothing.
_NAMES_OF_NETWORKS = (
    settings.interfaces.name,
    settings.advertise.name,
    settings.host_id.name,
    "NCCL_SOCKET_IFNAME",
)


def _environment(hosts: FakeHosts | None) -> dict[str, str]:
    if hosts is None:
        return dict(os.environ)
    kept = {k: v for k, v in os.environ.items() if k not in _NAMES_OF_NETWORKS}
    return {**kept, "GLOO_SOCKET_IFNAME": INTERFACE}


@contextmanager
def started(
    kinds: Sequence[tuple[str, Mapping[str, str]]],
    ranks: int,
    hosts: FakeHosts | None = None,
) -> Iterator[list[Job]]:
    """A connected job per kind; afterwards no process of theirs is left.

    The ranks are on `hosts`, as many on each, or on this one.

    A kind is the peer and what the environment of its ranks has besides this process's.

    Raises:
        JobError: a rank ended while it started.
    """
    mark = secrets.token_hex(16)
    environment = {**_environment(hosts), settings.job_mark.name: mark}
    guard = Guard(settings.job_mark.name, mark)
    jobs: list[Job] = []
    is_failed = True
    try:
        with tempfile.TemporaryDirectory(
            prefix="allhands_bench_", dir=_place_of_sockets()
        ) as parent:
            for number, (peer, more) in enumerate(kinds):
                folder = Path(parent, str(number))
                folder.mkdir()
                jobs.append(Job(peer, ranks, folder, {**environment, **more}, hosts))
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
