"""Where the ranks of one host meet that a launcher started without an address.

Rank 0 hosts a store at a port that the system picks, and writes where, with a secret of
the job, to a file that only this user can read. Its name is the job's, so all ranks
know it; and it names rank 0's process, so nobody believes what an ended one has left.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import stat
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from allhands import settings
from allhands.errors import DistStoreError
from allhands.rendezvous.first_rank import wait_for_rank_0
from allhands.rendezvous.hosted import open_store
from allhands.rendezvous.identity import (
    Identity,
    is_alive,
    is_identity,
    process_identity,
)
from allhands.store import Store, TCPStore

__all__ = ["meet_on_this_host"]

_HERE = "127.0.0.1"
_MOST_BYTES = 4096
_SUFFIX = ".meeting"


class _Place(NamedTuple):
    port: int
    secret: str


_places: dict[Path, _Place] = {}  # of earlier worlds: they stay where they were


def meet_on_this_host(job: str, rank: int, size: int, timeout: timedelta) -> Store:
    """The store that the ranks of `job`, all on this host and this user's, share.

    Raises:
        DistStoreError: rank 0 did not come within `timeout`, or the folder of such
            files is not this user's own.
    """
    path = _folder() / (hashlib.sha256(job.encode()).hexdigest()[:32] + _SUFFIX)
    place = _places.get(path)
    if rank == 0:
        return _host(path, place, size, timeout)
    if place is None:
        place = _places[path] = _look_for(path, rank, timeout)
        os.environ[settings.secret.name] = place.secret
    return open_store(_HERE, place.port, rank, size, timeout)


def _host(path: Path, place: _Place | None, size: int, timeout: timedelta) -> Store:
    if not settings.secret.get():
        os.environ[settings.secret.name] = os.urandom(32).hex()
    store = open_store(_HERE, 0 if place is None else place.port, 0, size, timeout)
    if place is None:
        assert isinstance(store, TCPStore), "rank 0 hosts it"
        place = _places[path] = _Place(store.port, settings.secret.get())
        _sweep(path.parent)
        _write(path, place)
    return store


def _write(path: Path, place: _Place) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, json.dumps([*process_identity(), *place]).encode())
    finally:
        os.close(file)
    draft.replace(path)
    atexit.register(_remove, path, os.getpid())


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # no fork
        path.unlink(missing_ok=True)


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
    """What the file says; None where there is none, or none of ours."""
    with suppress(OSError, ValueError, RecursionError):
        with open(path, "rb") as file:
            *parts, port, secret = json.loads(file.read(_MOST_BYTES))
        if is_identity(*parts) and type(port) is int and type(secret) is str:
            return Identity(*parts), _Place(port, secret)
    return None


def _sweep(folder: Path) -> None:
    """Remove what jobs have left that were killed."""
    for path in folder.glob(f"*{_SUFFIX}"):
        said = _read(path)
        if said is not None and not is_alive(said[0]):
            path.unlink(missing_ok=True)


def _folder() -> Path:
    """A folder of this user's own, in memory where that can be."""
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
