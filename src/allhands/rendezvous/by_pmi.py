"""How ranks on several hosts meet by the PMI of their launcher.

Rank 0 hosts a store at a port that the system picks. It publishes the place, a secret
of the job, and its process, so that no rank believes the remains of an ended process.
The others look this up. A process does this once; later worlds meet at the same place.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import NamedTuple

from allhands import settings
from allhands.errors import DistStoreError
from allhands.rendezvous.address_choice import addresses_to_listen_at
from allhands.rendezvous.first_rank import wait_for_rank_0
from allhands.rendezvous.hosted import open_store
from allhands.rendezvous.identity import Identity, is_identity, process_identity
from allhands.rendezvous.launched import Launched
from allhands.rendezvous.pmi import has_pmi, pmi
from allhands.store import Store, TCPStore

__all__ = ["is_slurms_pmi_taken", "meet_by_pmi", "meets_by_pmi"]

_NAME = "allhands"
_LONGEST_PAUSE_S = 0.1  # mpiexec answers all ranks


class _Place(NamedTuple):
    host: str
    port: int
    secret: str


_place: _Place | None = None
_launcher = ""
"""The launcher whose PMI this process has used."""


def is_slurms_pmi_taken() -> bool:
    """Return whether this process has used Slurm's PMI: then MPI cannot begin."""
    return _launcher == "srun"


def meets_by_pmi(launched: Launched) -> bool:
    """Return whether these ranks meet by PMI.

    With Hydra, the launcher of MPICH, MPI can begin afterwards in the same process.
    With Slurm it cannot, so the user has to state that MPI is not needed.
    """
    choice = settings.pmi.get()
    is_chosen = choice == "yes" or (choice == "auto" and launched.launcher == "mpiexec")
    return is_chosen and (_place is not None or has_pmi())


def meet_by_pmi(launched: Launched, timeout: timedelta) -> Store:
    """Return the store that the ranks share.

    Raises:
        DistStoreError: rank 0 did not come within `timeout`, or the launcher does not
            answer.
        DistNetworkError: rank 0 came, but this rank did not reach its store within
            `timeout`.
    """
    global _launcher, _place
    _launcher = launched.launcher
    rank, size = launched.rank, launched.size
    if _place is None and rank > 0:
        _place = _find(rank, timeout)
        os.environ[settings.secret.name] = _place.secret
    if _place is not None:
        return open_store(_place.host, _place.port, rank, size, timeout)
    if not settings.secret.get():
        os.environ[settings.secret.name] = os.urandom(32).hex()
    host = launched.host or addresses_to_listen_at(None)[0]
    store = open_store(host, 0, rank, size, timeout)
    assert isinstance(store, TCPStore), "rank 0 hosts it"
    place = _Place(host, store.port, settings.secret.get())
    pmi().publish(_NAME, _as_text(process_identity(), place))
    _place = place
    return store


def _find(rank: int, timeout: timedelta) -> _Place:
    """Return the place that rank 0 has published."""
    found: list[_Place] = []

    def look() -> Identity | None:
        text = pmi().look_up(_NAME)
        if text is None:
            return None
        identity, place = _read(text)
        found[:] = [place]
        return identity

    wait_for_rank_0(look, rank, timeout, _LONGEST_PAUSE_S)
    return found[0]


def _as_text(identity: Identity, place: _Place) -> str:
    """Return the text in hexadecimal, because PMI has no quotes."""
    return json.dumps([*identity[:3], *place], separators=(",", ":")).encode().hex()


def _read(text: str) -> tuple[Identity, _Place]:
    try:
        host, pid, start, *place = json.loads(bytes.fromhex(text))
        is_ours = is_identity(host, pid, start, "")
        is_ours = is_ours and [type(part) for part in place] == [str, int, str]
    except (ValueError, TypeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise DistStoreError(
            f"init_process_group: the launcher's PMI has under the name {_NAME!r} what "
            f"rank 0 does not write: {text[:80]!r}; every rank needs the same version "
            f"of allhands"
        )
    return Identity(host, pid, start), _Place(*place)
