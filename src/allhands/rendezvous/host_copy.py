"""One copy of a long roster for all ranks of a host, who take it from each other.

A rank that has the roster keeps it in memory without a name (a memfd), and tells which
process and descriptor that is; the others open it there. They check it against the
digest that rank 0 has told, so it does not matter who gave it. Whoever cannot open it,
since the process has gone or is another user's, gets it from the store.

On the host of rank 0 that is rank 0; the outcome says where it has the roster. On each
other host it is the rank that comes first, which gets the roster from the store.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from datetime import timedelta

from allhands.errors import DistNetworkError, DistStoreError
from allhands.rendezvous.identity import Identity, is_identity, process_identity
from allhands.rendezvous.outcome import Outcome
from allhands.store import PrefixStore, Store

__all__ = ["HostCopy", "digest_of"]

# Who does not say within so long where it has the roster is stopped or dying.
_ANSWER = timedelta(seconds=2)
_MOST_BYTES = 1 << 28
_ROSTER = "roster"  # the key in the store


class HostCopy:
    """The roster of a world on its way to this host; keeps it until `close`.

    Args:
        store: what the ranks of this world alone share.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._place: Store | None = None
        """Where this rank has told that it has the roster, on a host without rank 0."""
        self._fd = -1

    @property
    def is_kept(self) -> bool:
        """Whether other ranks take the roster from this process."""
        return self._fd >= 0

    def publish(self, roster: str) -> int:
        """Leave `roster` in the store, and keep it for the ranks of this host.

        Returns the descriptor that has it; -1 where none has.
        """
        data = roster.encode()
        self._store.set(_ROSTER, data)
        self._keep(data)
        return self._fd

    def fetch(self, outcome: Outcome, rank_0: Identity) -> bytes:
        """The roster that `outcome` tells of.

        Raises:
            DistStoreError: what the store has is another one.
        """
        host = process_identity().host
        if host == rank_0.host:
            found = _open(rank_0.pid, outcome.copy)
        else:
            found = self._from_first_of_host(host, outcome)
        if digest_of(found) != outcome.digest:
            found = self._store.get(_ROSTER)
        if digest_of(found) != outcome.digest:
            raise DistStoreError(
                f"the list of ranks in the store is not the one that rank 0 left: "
                f"{found[:80]!r}"
            )
        return found

    def close(self) -> None:
        """Keep it no longer."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        if self._place is not None:
            with suppress(NotImplementedError):  # a user's store need not be able to
                for key in ("num_come", "copy"):
                    self._place.delete_key(key)
        self._place = None

    def _from_first_of_host(self, host: str, outcome: Outcome) -> bytes:
        name = digest_of(f"{outcome.token} {host}".encode())[:16]
        place = PrefixStore(f"host/{name}", self._store)
        if place.add("num_come", 1) == 1:
            self._place = place
            found = self._store.get(_ROSTER)
            self._keep(found)
            place.set("copy", json.dumps([*process_identity(), self._fd]))
            return found
        try:
            said = json.loads(place._get_within("copy", _ANSWER) or b"")
        except DistNetworkError:
            raise
        except (RuntimeError, ValueError):  # nothing was said, or no such thing
            return b""
        if type(said) is not list or len(said) != 5 or not is_identity(*said[:4]):
            return b""
        if type(said[4]) is not int:
            return b""
        return _open(said[1], said[4])

    def _keep(self, data: bytes) -> None:
        with suppress(OSError):  # out of descriptors or memory
            self._fd = os.memfd_create("allhands_roster")
            with open(self._fd, "wb", closefd=False) as file:
                file.write(data)


def digest_of(roster: bytes) -> str:
    """What a copy of `roster` is checked against."""
    import hashlib  # some milliseconds that a mere import need not take

    return hashlib.sha256(roster).hexdigest()


def _open(pid: int, fd: int) -> bytes:
    """What a descriptor of a process has, nothing where that cannot be read.

    The process may have gone, and the number be another's.
    """
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        with open(os.open(f"/proc/{pid}/fd/{fd}", flags), "rb") as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES:
                return file.read()
    except OSError:
        pass
    return b""
