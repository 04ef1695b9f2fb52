"""MpiJob: this process as a rank of MPI, and `mpi://`, by which such ranks meet.

MPI itself gives rank and size. It also carries the place of the store that rank 0
hosts, with the job's secret. If mpiexec has started all ranks on this host, they meet
as those of other backends do (`host_file`), and before MPI begins: MPI would wait
without limit for a rank that asks for another backend. MPI begins on first use, by
mpi4py, and ends with the program. A rank that an exception ends does not end MPI: MPI
would wait there for the others, which wait for this rank. When this rank has gone,
mpiexec ends the others.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from allhands import settings
from allhands.errors import DistBackendError, DistStoreError
from allhands.options import default_pg_timeout, to_seconds
from allhands.rendezvous.address_choice import addresses_to_listen_at
from allhands.rendezvous.by_pmi import is_slurms_pmi_taken
from allhands.rendezvous.host_file import meet_on_this_host
from allhands.rendezvous.launched import Launched, find_launched
from allhands.rendezvous.mpi_library import INSTALL, library_name, why_no_mpi
from allhands.rendezvous.presence import enter
from allhands.store import HashStore, Store, TCPStore
from allhands.store.limits import poll

__all__ = [
    "MpiJob",
    "join_mpi_job",
    "meet_by_mpi",
]

# Variables of processes that MPI's launchers start; these two give the size of the job.
# srun also sets the first one if it uses that launcher's protocol.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_MARKS = (*_SIZES, "PMI_RANK", "PMI_FD", "PMIX_RANK", "MPI_LOCALRANKID")
_PLACE_BYTES = 512
_GOODBYE = timedelta(seconds=10)


@dataclass(frozen=True)
class MpiJob:
    """MPI in this process, which has one. Callers hold `lock` while they call MPI."""

    mpi: Any
    """The module `mpi4py.MPI`."""
    world: Any
    """A communicator of all ranks that mpiexec started."""
    lock: AbstractContextManager[Any]
    """Reentrant: a signal handler may run during a call."""

    @property
    def rank(self) -> int:
        """This process's rank among all that mpiexec started."""
        rank: int = self.world.Get_rank()
        return rank

    @property
    def size(self) -> int:
        """The number of ranks that mpiexec started."""
        size: int = self.world.Get_size()
        return size

    @property
    def library(self) -> str:
        """MPI's name and version, in one line."""
        return library_name(self.mpi)

    def failed(self, what: str, error: Exception) -> DistBackendError:
        """Return the error for an error of MPI, with its text."""
        return DistBackendError(f"{what}: {self.library} says: {error}")


_job: MpiJob | None = None
_begun_copy: tuple[Any, Any] | None = None
"""The copy of the world and MPI's request for it, if an earlier call gave up on it."""


def join_mpi_job(timeout: timedelta = default_pg_timeout) -> MpiJob:
    """Return MPI; begin it if necessary, for which all ranks have to come.

    Raises:
        RuntimeError: MPI is not installed; or this process is one of several that MPI's
            mpiexec did not start.
        DistStoreError: some ranks did not come within `timeout`; the call may be
            repeated.
    """
    global _job
    if _job is None:
        _check_installed()
        _check_start(os.environ)
        _job = _begin(timeout)
    return _job


def _check_installed() -> None:
    problem = why_no_mpi()
    if problem:
        raise RuntimeError(f'backend "mpi": {problem}')


def _check_start(environment: Mapping[str, str]) -> None:
    """Refuse a rank in which MPI cannot begin.

    Such a rank belongs to a job of another launcher, of which MPI does not know, or has
    used Slurm's PMI.
    """
    if is_slurms_pmi_taken():
        raise RuntimeError(
            f'backend "mpi": MPI cannot begin in this process any more: the ranks have '
            f"met by Slurm's PMI, which answers one user alone; leave "
            f"{settings.pmi.name} unset"
        )
    size = environment.get("WORLD_SIZE", "")
    if any(environment.get(mark) for mark in _MARKS) or not size.isdecimal():
        return
    if int(size) > 1:
        rank = environment.get("RANK", "?")
        who = "`allhands run`" if settings.store.get() else "another launcher"
        raise RuntimeError(
            f'backend "mpi": this process is rank {rank} of {size} that {who} started, '
            f"and MPI needs ranks that its own launcher started: "
            f"mpiexec -n {size} python program.py"
        )


def _begin(timeout: timedelta) -> MpiJob:
    import mpi4py

    is_ours = "mpi4py.MPI" not in sys.modules
    if is_ours:
        mpi4py.rc.finalize = False  # see _end
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f'backend "mpi": mpi4py cannot load an MPI library ({error}); {INSTALL}'
        ) from error
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
        is_ours = True
    if is_ours:
        atexit.register(_end, MPI, os.getpid())
    _check_library(MPI, os.environ)
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise RuntimeError(
            'backend "mpi": MPI was begun for one thread only, and this package may '
            "call it from several: set mpi4py.rc.thread_level to 'serialized' or "
            "'multiple' before mpi4py.MPI is imported, or leave it as it is"
        )
    return MpiJob(MPI, _copy_of_world(MPI, timeout), threading.RLock())


def _check_library(mpi: Any, environment: Mapping[str, str]) -> None:
    """Refuse a rank that is alone although its mpiexec started several."""
    if mpi.COMM_WORLD.Get_size() > 1:
        return
    for name in _SIZES:
        size = environment.get(name, "")
        if size.isdecimal() and int(size) > 1:
            raise RuntimeError(
                f'backend "mpi": mpiexec started {size} ranks ({name}), but '
                f"{library_name(mpi)}, which mpi4py has loaded, sees this one only: "
                f"mpiexec is that of another MPI. Use the one of {library_name(mpi)}, "
                f"or choose the library by MPI4PY_LIBMPI=/path/to/libmpi.so"
            )


def _copy_of_world(mpi: Any, timeout: timedelta) -> Any:
    """Return a communicator of all ranks that no message of other code reaches."""
    global _begun_copy
    _begun_copy = _begun_copy or mpi.COMM_WORLD.Idup()
    world, request = _begun_copy
    for _ in poll(timeout):
        if request.Test():
            break
    else:
        raise DistStoreError(
            f"init_process_group: rank {mpi.COMM_WORLD.Get_rank()} (this process) "
            f"waited {to_seconds(timeout):g} s (its timeout) for the others: not all "
            f"of the {mpi.COMM_WORLD.Get_size()} ranks that mpiexec started have come"
        )
    _begun_copy = None
    world.Set_errhandler(mpi.ERRORS_RETURN)
    return world


def _end(mpi: Any, pid: int) -> None:
    """End MPI at the end of the program, if the others end it too.

    MPI would wait without limit for a rank that does not end it. Some libraries also
    wait for operations that will never end.
    """
    has_failed = getattr(sys, "last_value", None) is not None
    if os.getpid() != pid or mpi.Is_finalized() or has_failed or _job is None:
        return
    try:
        is_over = _ends(_job, _job.world.Ibarrier().Test, _GOODBYE)
    except mpi.Exception:  # a rank has died, and MPI outlives that
        return
    if is_over:
        thread = threading.Thread(target=mpi.Finalize, daemon=True)
        thread.start()
        thread.join(to_seconds(_GOODBYE))


def meet_by_mpi(
    url: str, timeout: timedelta = default_pg_timeout
) -> Iterator[tuple[Store, int, int]]:
    """The handler of `mpi://`; see `rendezvous`."""
    query = dict(parse_qsl(urlsplit(url).query))
    _check_installed()
    _check_start(os.environ)
    launched = find_launched(os.environ)
    if launched and launched.launcher == "mpiexec" and launched.is_on_one_host:
        rank, size = launched.rank, launched.size
        _warn_of_others(query, rank, size)
        launched.show(os.environ)
        store = _meet_here(launched, timeout)
    else:
        job = join_mpi_job(timeout)
        rank, size = job.rank, job.size
        _warn_of_others(query, rank, size)
        store = _host(job, timeout) if rank == 0 else _find(job, timeout)
        enter(store, rank)
    yield store, rank, size
    raise RuntimeError("Unable to perform re-rendezvous using mpi:// method")


def _meet_here(launched: Launched, timeout: timedelta) -> Store:
    """Return the store of ranks that are all on this host."""
    rank, size = launched.rank, launched.size
    if size == 1:
        return HashStore()
    return meet_on_this_host(launched.job, rank, size, timeout)


def _warn_of_others(query: Mapping[str, str], rank: int, size: int) -> None:
    for name, own in (("rank", rank), ("world_size", size)):
        if query.get(name, str(own)) != str(own):
            warnings.warn(
                f"init_process_group: {name}={query[name]} is ignored, because MPI "
                f"says {own}; leave it out, MPI knows it",
                stacklevel=3,
            )


def _host(job: MpiJob, timeout: timedelta) -> Store:
    """Host a store on rank 0, and tell the others its place."""
    if not settings.secret.get():
        os.environ[settings.secret.name] = os.urandom(32).hex()
    host = _own_address(job)
    store = TCPStore(
        host, 0, job.size, is_master=True, wait_for_workers=False, timeout=timeout
    )
    _broadcast(job, f"{host} {store.port} {settings.secret.get()}", timeout)
    return store


def _find(job: MpiJob, timeout: timedelta) -> Store:
    host, port, secret = _broadcast(job, "", timeout).split(" ", 2)
    os.environ[settings.secret.name] = secret
    return TCPStore(host, int(port), job.size, timeout=timeout)


def _own_address(job: MpiJob) -> str:
    """Return the address of rank 0 for others: loopback if all share its host."""
    for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        if os.environ.get(name) == str(job.size):
            return "127.0.0.1"
    return "127.0.0.1" if job.size == 1 else addresses_to_listen_at(None)[0]


def _broadcast(job: MpiJob, text: str, timeout: timedelta) -> str:
    """Return the text of rank 0 on every rank."""
    place = bytearray(text.encode().ljust(_PLACE_BYTES, b"\0"))
    with job.lock:
        request = job.world.Ibcast([place, job.mpi.BYTE], 0)
    if not _ends(job, request.Test, timeout):
        raise DistStoreError(
            f"init_process_group: rank {job.rank} (this process) waited "
            f"{to_seconds(timeout):g} s (its timeout) for "
            f"{'the others' if job.rank == 0 else 'rank 0'}, as MPI says"
        )
    return place.rstrip(b"\0").decode()


def _ends(job: MpiJob, test: Callable[[], bool], timeout: timedelta) -> bool:
    """Return whether a request ends in time."""
    for _ in poll(timeout):
        with job.lock:
            if test():
                return True
    return False
