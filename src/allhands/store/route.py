"""Route: by which address a process reaches its store."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Route"]

_LOCAL_NAMES = ("localhost", "localhost.localdomain", "localhost6", "ip6-localhost")


class Route(NamedTuple):
    """How a process reaches the data of a store.

    Attributes:
        host: where the data are, as the user named it; empty where no network leads to
            them: in memory, in a file.
        own_address: this process's on the way there; empty where that is not known.
    """

    host: str = ""
    own_address: str = ""

    @property
    def stays_here(self) -> bool:
        """Whether, as far as that tells, everybody who uses the store is on this host.

        A name other than `localhost` tells nothing: on the host that it names it often
        means an address of the loopback, too.
        """
        host = self.host.lower()
        return (
            not host or host in _LOCAL_NAMES or host.startswith("127.") or host == "::1"
        )
