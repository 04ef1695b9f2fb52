"""AgreedCalls: the calls of `new_group` in which the ranks of a host agree so far.

When the first rank of a host learns from the store that the ranks agree on a call, it
notes this in a page of memory that the ranks of the host share. The others then need
not ask the store. If the page says nothing, or is not available, a rank asks the store.
The page may still say that ranks agreed although a later rank, on another host or at
the same moment, did not.

The page is a memfd. The rank that comes first makes it and keeps it open. The others
learn its descriptor from the store and open it. It takes one descriptor per rank, from
the rank's first call of `new_group` on.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from allhands.rendezvous.identity import is_identity, process_identity
from allhands.store import Store

__all__ = ["AgreedCalls"]

_WORD = 8
# A rank that is further behind than this number of calls asks the store.
_NUM_WORDS = 512
_NUM_BYTES = _NUM_WORDS * _WORD


class AgreedCalls:
    """The page of this host; for one thread at a time.

    Args:
        store: the store in which the calls of the world are compared.
        world: a unique name of the world.
    """

    def __init__(self, store: Store, world: str) -> None:
        self.store = store
        self._fd = -1
        with suppress(OSError):  # no descriptors left, or the page's owner has ended
            self._fd = _shared_page(store, f"allhands_groups_{world}")

    def have(self, number: int, call: str) -> bool:
        """Return whether it is known that the ranks' call of this number is `call`."""
        if self._fd < 0:
            return False
        word = os.pread(self._fd, _WORD, _place(number))
        return word == _digest(number, call)

    def add(self, number: int, call: str) -> None:
        """Note that all ranks made `call` as their call of this number, so far."""
        self._write(number, _digest(number, call))

    def forget(self, number: int) -> None:
        """Note that the ranks differ: ranks that come later ask the store."""
        self._write(number, bytes(_WORD))

    def close(self) -> None:
        """Release the page."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _write(self, number: int, word: bytes) -> None:
        if self._fd >= 0:
            os.pwrite(self._fd, word, _place(number))


def _place(number: int) -> int:
    return number % _NUM_WORDS * _WORD


def _digest(number: int, call: str) -> bytes:
    import hashlib  # some milliseconds that a mere import need not take

    text = f"{number} {call}".encode()
    return hashlib.blake2b(text, digest_size=_WORD).digest()


def _shared_page(store: Store, name: str) -> int:
    """Return a descriptor of this host's page.

    Raises:
        OSError: the page is not available.
    """
    process = process_identity()
    own = os.memfd_create(name)
    try:
        os.ftruncate(own, _NUM_BYTES)
        mine = json.dumps([process.pid, process.start, own]).encode()
        owner = store.compare_set(f"page/{process.host}", "", mine)
        if owner != mine:
            return _open(owner, name)
        own, page = -1, own
        return page
    finally:
        if own >= 0:
            os.close(own)


def _open(owner: bytes, name: str) -> int:
    """Open the page that another process keeps open.

    Raises:
        OSError: that process has no page, or has ended.
    """
    try:
        pid, start, fd = json.loads(owner)
    except (ValueError, TypeError, RecursionError):
        pid = start = fd = None
    if not is_identity("", pid, start, "") or type(fd) is not int:
        raise OSError(f"no process keeps a page: {owner[:80]!r}")
    # This number may mean another file by now, which must not be written to.
    link = f"/proc/{pid}/fd/{fd}"
    if not os.readlink(link).startswith(f"/memfd:{name} "):
        raise OSError(f"process {pid} keeps no page {name!r} as its descriptor {fd}")
    page = os.open(link, os.O_RDWR | os.O_CLOEXEC)
    if not os.readlink(f"/proc/self/fd/{page}").startswith(f"/memfd:{name} "):
        os.close(page)
        raise OSError(f"process {pid} has closed its page {name!r}")
    return page
