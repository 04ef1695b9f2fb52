"""Which calls of `new_group` the ranks of a host have found to be alike.

The first rank of a host that finds so, by the store, notes it in a page of memory that
the ranks of the host share; the others then need not ask the store. Where
the page says nothing, or cannot be had, one asks. It may say still that ranks agreed
where one that came later, on another host or at the same moment, did not.

A memfd: the rank that comes first makes it and keeps it open, the others open its
descriptor. They learn from the store which that is. One descriptor a rank, from its
first call of `new_group` on.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from allhands.rendezvous.identity import is_identity, process_identity
from allhands.store import Store

__all__ = ["AgreedCalls"]

_WORD = 8
# A rank that is more calls behind than this asks the store.
_NUM_WORDS = 512
_NUM_BYTES = _NUM_WORDS * _WORD


class AgreedCalls:
    """The page of this host; for one thread at a time.

    Args:
        store: where the world's calls are compared.
        world: a name that no other world has.
    """

    def __init__(self, store: Store, world: str) -> None:
        self.store = store
        self._fd = -1
        with suppress(OSError):  # out of descriptors, or the page's owner has gone
            self._fd = _shared_page(store, f"allhands_groups_{world}")

    def have(self, number: int, call: str) -> bool:
        """Whether it is known that the ranks' call of this number is `call`."""
        if self._fd < 0:
            return False
        word = os.pread(self._fd, _WORD, _place(number))
        return word == _digest(number, call)

    def add(self, number: int, call: str) -> None:
        """The ranks that made their call of this number so far made this one."""
        self._write(number, _digest(number, call))

    def forget(self, number: int) -> None:
        """They differ: whoever comes later asks the store."""
        self._write(number, bytes(_WORD))

    def close(self) -> None:
        """Know nothing more."""
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
    """A descriptor of this host's page.

    Raises:
        OSError: there is none to be had.
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
    """The page that another process has open.

    Raises:
        OSError: it has none, or is no more.
    """
    try:
        pid, start, fd = json.loads(owner)
    except (ValueError, TypeError, RecursionError):
        pid = start = fd = None
    if not is_identity("", pid, start, "") or type(fd) is not int:
        raise OSError(f"no process keeps a page: {owner[:80]!r}")
    # What has the number now may be another file, in which nothing is to be written.
    link = f"/proc/{pid}/fd/{fd}"
    if not os.readlink(link).startswith(f"/memfd:{name} "):
        raise OSError(f"process {pid} keeps no page {name!r} as its descriptor {fd}")
    page = os.open(link, os.O_RDWR | os.O_CLOEXEC)
    if not os.readlink(f"/proc/self/fd/{page}").startswith(f"/memfd:{name} "):
        os.close(page)
        raise OSError(f"process {pid} has closed its page {name!r}")
    return page
