"""Port: where ranks of other hosts reach this process.

A rank opens its port before it meets the others, because it tells them where it
listens. The port accepts peers only after all ranks of several hosts have met, and only
peers that know the job's token. If all ranks are on one host, the port is closed; if
this is known before, it is never opened. The port lives as long as something holds it:
the roster of a world, or the groups made from it.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from allhands import _C, settings
from allhands.errors import DistNetworkError
from allhands.rendezvous.address_choice import addresses_to_listen_at, names_interfaces
from allhands.rendezvous.endpoints import num_that_fit
from allhands.rendezvous.ucx_choice import choose_ucx
from allhands.store import Store

__all__ = ["Port", "may_span_hosts", "open_port"]


class Port(NamedTuple):
    """A port, or the reason why there is none although it may be needed.

    Attributes:
        native: the port; None if this process does not listen.
        problem: why the process failed to listen. This matters only if the world has
            ranks of other hosts.
    """

    native: _C.TcpPort | None = None
    problem: str = ""

    @property
    def endpoints(self) -> str:
        """Where the port is, in the form that the others get."""
        return ",".join(self.native.endpoints()) if self.native is not None else ""

    def close(self) -> None:
        """Stop listening."""
        if self.native is not None:
            self.native.close()


def open_port(size: int, store: Store) -> Port:
    """Return a port if some of `size` ranks with this `store` may be elsewhere.

    Raises:
        ValueError: the user's settings for it are not valid.
        DistBackendError: the settings ask for encryption or UCX, and there is no
            OpenSSL or no UCX here.
    """
    first, last = settings.port_range.get() or (0, 0)
    places, silence = settings.advertise.get(), settings.heartbeat.get()
    is_encrypted, sockets = settings.tls.get(), settings.sockets.get()
    if not may_span_hosts(size, store):
        return Port()
    if is_encrypted and not settings.secret.get():
        raise ValueError(
            f"{settings.tls.name}=1 needs a secret to make keys of, and "
            f"{settings.secret.name} is not set: set it to the same text on all ranks"
        )
    ucx = choose_ucx()
    try:
        hosts = addresses_to_listen_at(store._route())
        # The others can learn only so many; the process does not listen where nobody
        # looks.
        places = places[: num_that_fit(host for host, _ in places)]
        hosts = hosts if places else hosts[: num_that_fit(hosts)]
        native = _C.TcpPort(
            hosts,
            first,
            last,
            advertised=places,
            heartbeat=silence,
            is_encrypted=is_encrypted,
            # The ranks of a host spread over the interfaces that its peers have.
            rail=_number("LOCAL_RANK"),
            sockets=sockets,
            ucx=ucx,
        )
    except DistNetworkError as error:
        return Port(problem=str(error))
    return Port(native)


def may_span_hosts(size: int, store: Store) -> bool:
    """Return whether some of `size` ranks that share `store` may be on other hosts.

    The answer uses only what is known before the ranks have met.
    """
    if size == 1:
        return False
    if settings.host_id.get():  # ranks of one launcher may have several
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
    """Return the number in a launcher's variable; 0 if it is not set."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0
