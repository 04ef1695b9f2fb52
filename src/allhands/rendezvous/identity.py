"""Identity and Introduction: what a rank writes to the store about itself."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from allhands import _C, settings
from allhands.errors import DistStoreError
from allhands.rendezvous.asked import NOTHING, Asked
from allhands.rendezvous.endpoints import are_endpoints

__all__ = [
    "PIDS",
    "STARTS",
    "Identity",
    "Introduction",
    "is_alive",
    "is_host",
    "is_identity",
    "process_identity",
]

PIDS, STARTS = 1 << 31, 1 << 63
"""Upper bounds of pids and start times."""
_LONGEST_HOST = 512


class Identity(NamedTuple):
    """A process, unique among all hosts, and how ranks of other hosts reach it.

    Attributes:
        host: the boot of the machine, the pid namespace, and `settings.host_id`.
        pid: the number of the process on this host.
        start: the start of the process, in clock ticks since the boot.
        endpoints: where the process listens for ranks of other hosts; may be empty.
    """

    host: str
    pid: int
    start: int
    endpoints: str = ""


class Introduction(NamedTuple):
    """What a rank writes to the store when it comes."""

    world_size: int
    identity: Identity
    asked: Asked = NOTHING

    def to_bytes(self) -> bytes:
        """Return the introduction as the value for the store."""
        asked = [] if self.asked == NOTHING else self.asked
        return json.dumps([self.world_size, *self.identity, *asked]).encode()

    @staticmethod
    def read(rank: int, text: bytes) -> Introduction:
        """Parse the store's value for `rank`.

        Raises:
            DistStoreError: no rank wrote this value.
        """
        try:
            size, *said = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            size, said = 0, []
        identity, asked = said[:4], said[4:]
        is_size = type(size) is int and size > 0
        if not is_size or not is_identity(*identity) or not _is_asked(*asked):
            raise DistStoreError(
                f"the store says of rank {rank} what no rank writes: {text[:80]!r}; "
                f"every rank needs the same version of allhands, and no other program "
                f"may write there"
            )
        return Introduction(size, Identity(*identity), Asked(*asked))


def process_identity(endpoints: str = "") -> Identity:
    """Return this process, which listens at `endpoints` for ranks of other hosts."""
    host, pid, start, _ = _C.process_identity()
    if own := settings.host_id.get():
        host = f"{host}/{own}"
    return Identity(host, pid, start, endpoints)


def is_alive(process: Identity) -> bool:
    """Return False if the process has ended, as far as this host knows."""
    if process.host != process_identity().host:
        return True
    return _C.is_process_alive(process.pid, process.start)


def is_identity(*parts: Any) -> bool:
    """Return whether these can be the parts of an `Identity`."""
    if len(parts) != 4:
        return False
    host, pid, start, endpoints = parts
    return (
        is_host(host)
        and type(pid) is type(start) is int
        and 0 < pid < PIDS
        and 0 <= start < STARTS
        and type(endpoints) is str
        and are_endpoints(endpoints)
    )


def _is_asked(*parts: Any) -> bool:
    """Return whether these can be the parts of an `Asked`."""
    return tuple(map(type, parts)) in ((), (str, bool))


def is_host(host: Any) -> bool:
    """Return whether this can be the host of an `Identity`."""
    return (
        type(host) is str
        and len(host) <= _LONGEST_HOST
        and host.isascii()
        and host.isprintable()
    )
