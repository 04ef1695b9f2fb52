"""Route: the address by which a process reaches its store."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Route"]

_LOCAL_NAMES = ("localhost", "localhost.localdomain", "localhost6", "ip6-localhost")


class Route(NamedTuple):
    """How a process reaches the data of a store.

    Attributes:
        host: the host of the data, as the user named it; empty if the data are in
            memory or in a file, not behind a network.
        own_address: the address of this process on the way there; empty if it is
            unknown.
    """

    host: str = ""
    own_address: str = ""

    @property
    def stays_here(self) -> bool:
        """Whether all users of the store must be on this host, judging by `host`.

        A name other than `localhost` shows nothing: on the host with this name, it
        often means a loopback address, too.
        """
        host = self.host.lower()
        return (
            not host or host in _LOCAL_NAMES or host.startswith("127.") or host == "::1"
        )
