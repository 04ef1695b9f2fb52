"""Chooses the addresses at which a rank listens for ranks of other hosts.

If the user names interfaces, these are the addresses of those interfaces. Otherwise it
is the address by which the rank reached the store, because this certainly leads to the
other ranks. If the store is on this host, that address may be useless (a name that
means 127.0.1.1 here, or the address of a user's own store). Then the choice is, in this
order: another meaning of the store's name, the start of the default route, and the
meaning of the host's own name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from allhands import _C, settings
from allhands.errors import DistNetworkError
from allhands.rendezvous.interfaces import (
    InterfaceAddress,
    InterfaceList,
    addresses_here,
)
from allhands.store.route import Route

__all__ = ["addresses_to_listen_at", "names_interfaces"]

_LOOK_UP_LIMIT_S = 5.0
# Distant addresses in the networks reserved for examples; nothing is sent there.
_FAR_AWAY = ("203.0.113.1", "2001:db8::1")
# Bridges between programs of this machine; no other host is behind them.
_INNER = (
    *("docker", "br-", "veth", "virbr", "vmnet", "vboxnet", "podman", "lxc", "lxdbr"),
    *("cni", "cali", "flannel", "kube"),
)


def names_interfaces() -> bool:
    """Return whether the user names the interfaces."""
    return _named() is not None


def _named() -> tuple[str, str] | None:
    """Return the variable that names the interfaces, and its value."""
    if text := settings.interfaces.get():
        return settings.interfaces.name, text
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        if text := os.environ.get(name, ""):
            return name, text
    return None


def addresses_to_listen_at(route: Route | None) -> list[str]:
    """Return the addresses at which other hosts reach this rank, the best first.

    Args:
        route: how the rank reached the store, if this is known.

    Raises:
        DistNetworkError: there is no such address; the message says what was tried, and
            what to set.
        ValueError: the user's setting is not a list of interfaces.
    """
    here = addresses_here()
    named = InterfaceList(*said) if (said := _named()) else None
    own = route.own_address if route is not None else ""
    if named is not None and not named.only_excludes:
        return [a.address for a in named.chosen_of(here, prefers_ipv6=":" in own)]
    left = [each for each in here if each.is_up]
    if named is not None:
        left = named.left_of(left)
    if route is not None and route.stays_here and own:  # several hosts in name only
        return [own]
    tried = []
    usable = {each.address for each in left if not each.is_loopback}
    for what, find in _ways(route):
        found = find()
        if address := next((each for each in found if each in usable), None):
            return [address]
        tried.append(f"{what} ({' '.join(found) or 'nothing'})")
    if first := _first_of(left):
        return [first.address]
    excluded = f" that {named} leaves" if named is not None else ""
    raise DistNetworkError(
        f"this machine has no address{excluded} at which ranks of other hosts could "
        f"reach this one. Tried: {', '.join(tried)}. It has "
        f"{', '.join(map(str, here))}. Set {settings.interfaces.name} to the name or "
        f"network of one that leads to the other hosts"
    )


def _ways(route: Route | None) -> Iterator[tuple[str, Callable[[], Sequence[str]]]]:
    """Yield possible sources of an address: a description, and a look-up."""
    if route is not None and route.own_address:
        own = [route.own_address]
        yield "the address by which the store was reached", lambda: own
    if route is not None and route.host:
        yield f"what {route.host!r} means", partial(_towards, route.host)
    for far in _FAR_AWAY:
        yield f"where the way to {far} starts", partial(_towards, far)
    name = os.uname().nodename
    yield f"what this host's name {name!r} means", partial(_towards, name)


def _towards(host: str) -> Sequence[str]:
    return _C.addresses_towards(host, _LOOK_UP_LIMIT_S)


def _first_of(addresses: Sequence[InterfaceAddress]) -> InterfaceAddress | None:
    """Return the address that others most likely reach."""
    if not addresses:
        return None
    return min(
        addresses,
        key=lambda a: (
            a.is_loopback,
            a.interface.startswith(_INNER),
            a.is_link_local,
            a.is_ipv6,
        ),
    )
