"""How ranks meet that another launcher started.

On one host they meet in a file, see `host_file`. Between hosts, PMI carries the place
of rank 0, see `by_pmi`; or the launcher names the host of rank 0; or MPI carries the
place. A secret comes with each of these except a host name from the launcher.
"""

from __future__ import annotations

import os
from datetime import timedelta

from allhands import settings
from allhands.rendezvous.by_pmi import meet_by_pmi, meets_by_pmi
from allhands.rendezvous.host_file import meet_on_this_host
from allhands.rendezvous.hosted import open_store
from allhands.rendezvous.launched import Launched
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.mpi_library import INSTALL, why_no_mpi
from allhands.store import HashStore, Store
from allhands.store.arguments import as_port

__all__ = ["meet_as_launched"]


def meet_as_launched(launched: Launched, timeout: timedelta) -> Store:
    """Return the store that the ranks of this job share.

    Raises:
        ValueError: nothing says where rank 0 is.
        DistStoreError: rank 0 did not come within `timeout`.
    """
    rank, size = launched.rank, launched.size
    if size == 1:
        return HashStore()
    if launched.is_on_one_host:
        return meet_on_this_host(launched.job, rank, size, timeout)
    set_port = os.environ.get("MASTER_PORT")
    if not set_port and meets_by_pmi(launched):
        return meet_by_pmi(launched, timeout)
    host = os.environ.get("MASTER_ADDR") or launched.host
    port = set_port or launched.port
    if host and port:
        _note_no_secret(launched, f"{host}:{port}")
        return open_store(host, as_port(int(port)), rank, size, timeout)
    if launched.launcher == "mpiexec" and not why_no_mpi():
        from allhands.rendezvous.mpi_job import meet_by_mpi  # here: for few programs

        store, *_ = next(meet_by_mpi("mpi://", timeout))
        return store
    remedy = "set MASTER_ADDR and MASTER_PORT for all ranks"
    if launched.launcher == "mpiexec":
        remedy = f"install mpi4py, by which they agree ({INSTALL}), or {remedy}"
    raise ValueError(
        f"init_process_group: {launched.launcher} started {size} ranks, not all on "
        f"this host, and does not say where rank 0 is: {remedy}"
    )


_is_noted = False


def _note_no_secret(launched: Launched, place: str) -> None:
    """Say once that anybody who reaches the store can take part in the job."""
    global _is_noted
    if launched.rank == 0 and not settings.secret.get() and not _is_noted:
        _is_noted = True
        text = (
            f"{launched.launcher} carries no secret: whoever reaches {place} can take "
            f"part in this job. Set {settings.secret.name} to the same text for all "
            f"ranks"
        )
        if launched.launcher == "srun":
            text += (
                f"; or, if they do not use MPI, start them by srun --mpi=pmi2 and set "
                f"{settings.pmi.name}=yes"
            )
        say(LogLevel.WARNING, "meeting", launched.rank, text)
