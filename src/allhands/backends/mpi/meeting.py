"""Lets the members of a group meet, and MPI make a communicator for them.

MPI would wait without limit for a member that does not come. So the members meet in the
store first, where each says which MPI rank it is.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from allhands.backends.communicator import CommunicatorOptions
from allhands.backends.gathering import await_members, keys_of, store_of
from allhands.backends.mpi.failed_ranks import failed_ranks
from allhands.errors import DistBackendError
from allhands.rendezvous.mpi_job import MpiJob
from allhands.store import Store

__all__ = ["MpiGroup", "meet"]


class MpiGroup(NamedTuple):
    """The communicators and the store of a group whose members have met."""

    comm: Any
    own_comm: Any
    """For messages of this package, whose tags no program uses."""
    store: Store


def meet(job: MpiJob, options: CommunicatorOptions) -> MpiGroup:
    """Wait for all members, and let MPI make their communicator.

    Raises:
        RankFailedError: a member died before it came.
        DistStoreError: a member did not come within the group's timeout.
        DistBackendError: the members are not in one MPI job, or MPI could not make the
            communicator.
    """
    ranks = options.global_ranks_in_group
    token = options.roster().token_for("mpi", ranks, options.num_alike).hex()
    store = store_of("mpi", options)
    members = _exchange(job, store, options)
    with job.lock:
        try:
            comm = _communicator(job, members, token)
            comm.Set_errhandler(job.mpi.ERRORS_RETURN)
            own_comm = comm.Dup()
        except job.mpi.Exception as error:
            raise job.failed(f"group {options.group_id!r}", error) from error
    return MpiGroup(comm, own_comm, store)


def _communicator(job: MpiJob, members: list[int], token: str) -> Any:
    """Return a communicator of these ranks, also if other ranks have died."""
    group = job.world.Get_group().Incl(members)
    try:
        return job.world.Create_group(group, int(token[:4], 16) % (1 << 15))
    except job.mpi.Exception as error:
        if not failed_ranks(job.mpi, job.world, error):
            raise
        name = f"allhands/{token}"
        return job.mpi.Intracomm.Create_from_group(
            group, name, errhandler=job.mpi.ERRORS_RETURN
        )


def _exchange(job: MpiJob, store: Store, options: CommunicatorOptions) -> list[int]:
    """Return the MPI ranks of the members."""
    keys = keys_of(options)
    mine = [job.rank, job.size]
    store.set(keys[options.group_rank], json.dumps(mine))
    await_members(store, keys, options, "mpi")
    places = [json.loads(text) for text in store.multi_get(keys)]
    members = [rank for rank, _ in places]
    if len(set(members)) < len(members) or any(size != job.size for _, size in places):
        raise DistBackendError(
            f"group {options.group_id!r}: its members say of themselves that they are "
            f"ranks {members} of their MPI jobs; a group of backend mpi is of one job, "
            f"that of one mpiexec"
        )
    return members
