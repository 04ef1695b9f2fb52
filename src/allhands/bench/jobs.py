"""Jobs that exist at the same time, take turns, and leave no processes behind."""

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
    """Return the usual temporary folder, or /tmp if a socket's path would be too long.

    The limit is 107 bytes (unix(7)), of which our names take up to 40.
    """
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) < 68 else "/tmp"


# These name interfaces and addresses of this machine, which fake hosts do not have.
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
    """Yield a connected job per kind; afterwards none of their processes is left.

    The ranks run on `hosts`, the same number on each, or on this host if that is None.
    A kind is the peer and the variables that its ranks get on top of this process's
    environment.

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
