"""What a rank says of itself in the store: its process, and the size of its world."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from allhands import _C, settings
from allhands.errors import DistStoreError
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
"""What pids and start times lie below."""
_LONGEST_HOST = 512


class Identity(NamedTuple):
    """A process: who it is among all hosts, and how ranks of others reach it.

    Attributes:
        host: this boot of a machine, the pid namespace, and `settings.host_id`.
        pid: its number on that host.
        start: when it began, in clock ticks since that boot.
        endpoints: where it listens for ranks of other hosts; empty: nowhere.
    """

    host: str
    pid: int
    start: int
    endpoints: str = ""


class Introduction(NamedTuple):
    """What a rank posts when it comes."""

    world_size: int
    identity: Identity

    def to_bytes(self) -> bytes:
        """As the store has it."""
        return json.dumps([self.world_size, *self.identity]).encode()

    @staticmethod
    def read(rank: int, text: bytes) -> Introduction:
        """What the store has of `rank`.

        Raises:
            DistStoreError: no rank wrote that.
        """
        try:
            size, *identity = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            size, identity = 0, []
        if type(size) is not int or size < 1 or not is_identity(*identity):
            raise DistStoreError(
                f"the store says of rank {rank} what no rank writes: {text[:80]!r}; "
                f"every rank needs the same version of allhands, and no other program "
                f"may write there"
            )
        return Introduction(size, Identity(*identity))


def process_identity(endpoints: str = "") -> Identity:
    """This process, which listens at `endpoints` for ranks of other hosts."""
    host, pid, start, _ = _C.process_identity()
    if own := settings.host_id.get():
        host = f"{host}/{own}"
    return Identity(host, pid, start, endpoints)


def is_alive(process: Identity) -> bool:
    """False once it has ended, as far as this host can tell."""
    if process.host != process_identity().host:
        return True
    return _C.is_process_alive(process.pid, process.start)


def is_identity(*parts: Any) -> bool:
    """Whether these can be the parts of an `Identity`."""
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


def is_host(host: Any) -> bool:
    """Whether this can be the host of an `Identity`."""
    return (
        type(host) is str
        and len(host) <= _LONGEST_HOST
        and host.isascii()
        and host.isprintable()
    )
