"""The port at which ranks of other hosts reach this process.

A rank opens it before it meets the others, since it tells them where it listens; it
lets somebody in only once all have met on more hosts than one, and only those who know
the job's token. Where all are on one host it is closed then, and where that is known
before, it is never opened. It lives as long as somebody holds it: the roster of a
world, the groups made of that.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from allhands import _C, settings
from allhands.errors import DistNetworkError
from allhands.rendezvous.address_choice import addresses_to_listen_at, names_interfaces
from allhands.rendezvous.endpoints import num_that_fit
from allhands.store import Store

__all__ = ["Port", "may_span_hosts", "open_port"]


class Port(NamedTuple):
    """A port, or why there is none where one may be needed.

    Attributes:
        native: it, None where this process listens nowhere.
        problem: why it does not, although it tried; matters only where the world turns
            out to have ranks of other hosts.
    """

    native: _C.TcpPort | None = None
    problem: str = ""

    @property
    def endpoints(self) -> str:
        """Where it is, as the others are told."""
        return ",".join(self.native.endpoints()) if self.native is not None else ""

    def close(self) -> None:
        """Listen no longer."""
        if self.native is not None:
            self.native.close()


def open_port(size: int, store: Store) -> Port:
    """A port, if a world of `size` ranks that share `store` may have some elsewhere.

    Raises:
        ValueError: what the user has set about it makes no sense.
        DistBackendError: it is to encrypt, and there is no OpenSSL here.
    """
    first, last = settings.port_range.get() or (0, 0)
    places, silence = settings.advertise.get(), settings.heartbeat.get()
    is_encrypted = settings.tls.get()
    if not may_span_hosts(size, store):
        return Port()
    if is_encrypted and not settings.secret.get():
        raise ValueError(
            f"{settings.tls.name}=1 needs a secret to make keys of, and "
            f"{settings.secret.name} is not set: set it to the same text on all ranks"
        )
    try:
        hosts = addresses_to_listen_at(store._route())
        # The others can be told no more; it does not listen where nobody looks for it.
        places = places[: num_that_fit(host for host, _ in places)]
        hosts = hosts if places else hosts[: num_that_fit(hosts)]
        native = _C.TcpPort(
            hosts,
            first,
            last,
            advertised=places,
            heartbeat=silence,
            is_encrypted=is_encrypted,
        )
    except DistNetworkError as error:
        return Port(problem=str(error))
    return Port(native)


def may_span_hosts(size: int, store: Store) -> bool:
    """Whether some of `size` ranks that share `store` may be on other hosts.

    For all that is known here, before they have met.
    """
    if size == 1:
        return False
    if settings.host_id.get():  # ranks that one launcher started may have several
        return True
    started = _number("WORLD_SIZE")
    local = _number("LOCAL_WORLD_SIZE")
    if 0 < local < started:
        return True
    if 0 < local == started and size <= started:  # the launcher knows where all are
        return False
    if names_interfaces():
        return True
    route = store._route()
    return route is None or not route.stays_here


def _number(variable: str) -> int:
    """What a launcher has set there; 0: nothing."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0
