"""The file through which the ranks of one host meet if a launcher gave no address.

Rank 0 hosts a store at a port that the system picks. It writes the port and a secret of
the job to a file that only this user can read. The name of the file is derived from the
job, so all ranks know it. The file names the process of rank 0, so no rank believes the
remains of an ended one. The file exists only while the ranks meet, because the next
program of the job uses the same name.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import stat
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from allhands import _C, settings
from allhands.errors import DistNetworkError, DistStoreError
from allhands.rendezvous.first_rank import wait_for_rank_0
from allhands.rendezvous.hosted import open_store
from allhands.rendezvous.identity import (
    Identity,
    is_alive,
    is_identity,
    process_identity,
)
from allhands.store import Store, TCPStore
from allhands.store.limits import poll

__all__ = ["meet_on_this_host", "withdraw"]

_HERE = "127.0.0.1"
_MOST_BYTES = 4096
_SUFFIX = ".meeting"
_FIRST_TRY, _LONGEST_TRY = timedelta(seconds=1), timedelta(seconds=8)
"""How long to dial one place before the file is read again."""


class _Place(NamedTuple):
    port: int
    secret: str


_ports: dict[Path, int] = {}  # of earlier worlds: rank 0 hosts the next one there, too
_written: set[Path] = set()


def meet_on_this_host(job: str, rank: int, size: int, timeout: timedelta) -> Store:
    """Return the store of the ranks of `job`, all on this host and of this user.

    Raises:
        DistStoreError: rank 0 did not come within `timeout`, or the folder of such
            files does not belong to this user alone.
        DistNetworkError: rank 0 came, but this rank did not reach its store within
            `timeout`.
    """
    name = f"{_C.process_identity()[0]} {job}"
    path = _folder() / (hashlib.sha256(name.encode()).hexdigest()[:32] + _SUFFIX)
    if rank == 0:
        return _host(path, size, timeout)
    return _find(path, rank, size, timeout)


def withdraw() -> None:
    """Remove the file of this process as rank 0: its world is complete, or failed.

    A later program of the same job meets through a file with the same name.
    """
    if not _written:
        return
    _, own, start, _ = _C.process_identity()
    while _written:
        path = _written.pop()
        said = _read(path)
        if said is not None and (said[0].pid, said[0].start) == (own, start):
            path.unlink(missing_ok=True)


def _host(path: Path, size: int, timeout: timedelta) -> Store:
    if not settings.secret.get():
        os.environ[settings.secret.name] = os.urandom(32).hex()
    store = open_store(_HERE, _ports.get(path, 0), 0, size, timeout)
    assert isinstance(store, TCPStore), "rank 0 hosts it"
    _ports[path] = store.port
    _sweep(path.parent)
    _write(path, _Place(store.port, settings.secret.get()))
    return store


def _write(path: Path, place: _Place) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    host, pid, start, _ = _C.process_identity()
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, json.dumps([host, pid, start, *place]).encode())
    finally:
        os.close(file)
    if not _written:
        atexit.unregister(withdraw)
        atexit.register(withdraw)
    _written.add(path)
    draft.replace(path)


def _find(path: Path, rank: int, size: int, timeout: timedelta) -> Store:
    """Return the store that the file names; read the file again until it is reached.

    The file may be that of the previous program, whose rank 0 is about to end.
    """
    deadline = time.monotonic() + timeout.total_seconds()
    patience = _FIRST_TRY
    for _ in poll(timeout):
        place = _look_for(path, rank, _left(deadline))
        os.environ[settings.secret.name] = place.secret
        try:
            store = open_store(
                _HERE, place.port, rank, size, min(patience, _left(deadline))
            )
        except DistNetworkError:
            if time.monotonic() >= deadline:
                raise
            patience = min(2 * patience, _LONGEST_TRY)
            continue
        store.set_timeout(timeout)
        return store
    raise AssertionError("poll ends with the deadline")


def _left(deadline: float) -> timedelta:
    return timedelta(seconds=max(deadline - time.monotonic(), 0.001))


def _look_for(path: Path, rank: int, timeout: timedelta) -> _Place:
    found: list[_Place] = []

    def look() -> Identity | None:
        said = _read(path)
        if said is None:
            return None
        found[:] = [said[1]]
        return said[0]

    wait_for_rank_0(look, rank, timeout)
    return found[0]


def _read(path: Path) -> tuple[Identity, _Place] | None:
    """Return the content of the file; None if there is none, or none of this host.

    Containers may share the folder, and a kept file may be from an earlier boot. This
    host cannot tell whether their processes have ended.
    """
    with suppress(OSError, ValueError, RecursionError):
        with open(path, "rb") as file:
            host, pid, start, port, secret = json.loads(file.read(_MOST_BYTES))
        is_here = host == _C.process_identity()[0] and is_identity(host, pid, start, "")
        if is_here and type(port) is int and type(secret) is str:
            return process_identity()._replace(pid=pid, start=start), _Place(
                port, secret
            )
    return None


def _sweep(folder: Path) -> None:
    """Remove files of jobs that were killed."""
    for path in folder.glob(f"*{_SUFFIX}"):
        said = _read(path)
        if said is not None and not is_alive(said[0]):
            path.unlink(missing_ok=True)


def _folder() -> Path:
    """Return a folder that only this user can access, in memory if possible."""
    shared = Path("/dev/shm")
    top = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    folder = top / f"allhands-jobs-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_private = not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.geteuid()
        or not is_private
    ):
        raise DistStoreError(
            f"init_process_group: {folder} is not a folder of this user's alone, and "
            f"the ranks are to meet there: remove it, or set MASTER_ADDR and "
            f"MASTER_PORT for all ranks"
        )
    return folder
