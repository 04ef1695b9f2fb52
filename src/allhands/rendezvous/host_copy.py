"""HostCopy: one copy of a long roster for all ranks of a host.

A rank that has the roster keeps it in memory without a name (a memfd), and tells the
others its process and descriptor, so that they can open it. They compare it with a
digest from rank 0, so it does not matter which process gave it. A rank that cannot open
it, because the process has ended or belongs to another user, gets the roster from the
store.

On the host of rank 0, rank 0 keeps the copy, and the outcome says where. On each other
host, the rank that comes first gets the roster from the store and keeps the copy.
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

# A rank that does not say within this time where it keeps the roster is stopped or
# dying.
_ANSWER = timedelta(seconds=2)
_MOST_BYTES = 1 << 28
_ROSTER = "roster"  # the key in the store


class HostCopy:
    """Fetches or publishes the roster of a world; keeps a copy until `close`.

    Args:
        store: the store for the ranks of this world alone.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._place: Store | None = None
        """Where this rank has announced its copy, on a host without rank 0."""
        self._fd = -1

    @property
    def is_kept(self) -> bool:
        """Whether other ranks read the roster from this process."""
        return self._fd >= 0

    def publish(self, roster: str) -> int:
        """Write `roster` to the store, and keep a copy for the ranks of this host.

        Returns the descriptor of the copy; -1 if there is none.
        """
        data = roster.encode()
        self._store.set(_ROSTER, data)
        self._keep(data)
        return self._fd

    def fetch(self, outcome: Outcome, rank_0: Identity) -> bytes:
        """Return the roster to which `outcome` refers.

        Raises:
            DistStoreError: the store holds another value.
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
        """Give up the copy."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        if self._place is not None:
            with suppress(NotImplementedError):  # a user's store may not support this
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
        except (RuntimeError, ValueError):  # the rank said nothing, or nothing valid
            return b""
        if type(said) is not list or len(said) != 5 or not is_identity(*said[:4]):
            return b""
        if type(said[4]) is not int:
            return b""
        return _open(said[1], said[4])

    def _keep(self, data: bytes) -> None:
        with suppress(OSError):  # no descriptors or memory left
            self._fd = os.memfd_create("allhands_roster")
            with open(self._fd, "wb", closefd=False) as file:
                file.write(data)


def digest_of(roster: bytes) -> str:
    """Return the digest with which a copy of `roster` is compared.

    BLAKE2, as of the tokens: SHA-256 would be OpenSSL's, which this process has not
    used yet.
    """
    import hashlib  # some milliseconds that a mere import need not take

    return hashlib.blake2b(roster, digest_size=32).hexdigest()


def _open(pid: int, fd: int) -> bytes:
    """Return the content of a process's descriptor; empty if it cannot be read.

    The process may have ended, and its number may belong to another process.
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
