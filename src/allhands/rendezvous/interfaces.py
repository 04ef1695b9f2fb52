"""The addresses of this machine, and selection among them by a list of interfaces.

Users write such lists in the syntax that NCCL made common. Items are separated by
commas. An item is a name or a prefix of names, `=name` for exactly this name, a network
("10.1.0.0/16") or an address. `^` before an item excludes it. A list that begins with
`^` only excludes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from allhands import _C
from allhands.errors import DistNetworkError

__all__ = ["InterfaceAddress", "InterfaceList", "addresses_here"]


class InterfaceAddress(NamedTuple):
    """One address of a network interface of this machine."""

    interface: str
    address: str
    prefix_length: int
    is_up: bool
    is_loopback: bool

    @property
    def is_ipv6(self) -> bool:
        """Whether this is an IPv6 address."""
        return ":" in self.address

    @property
    def is_link_local(self) -> bool:
        """Whether the address is valid only on its own link."""
        return self.address.lower().startswith(("fe80:", "169.254."))

    def __str__(self) -> str:
        state = "" if self.is_up else " (down)"
        return f"{self.interface} {self.address}/{self.prefix_length}{state}"


def addresses_here() -> list[InterfaceAddress]:
    """Return the addresses of this machine, in the system's order."""
    return [InterfaceAddress(*row) for row in _C.interface_addresses()]


class InterfaceList:
    """A user's list of interfaces.

    Args:
        name: the name of the variable.
        text: the list.

    Raises:
        ValueError: `text` is not such a list.
    """

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        items = [item.strip() for item in text.split(",")]
        self.only_excludes = items[0].startswith("^")
        """Whether the list only excludes, and leaves the other choices open."""
        excluded = [i for i in items if self.only_excludes or i.startswith("^")]
        self._excluded = [self._pattern(item.removeprefix("^")) for item in excluded]
        self._included = [self._pattern(item) for item in items if item not in excluded]

    def left_of(self, here: Iterable[InterfaceAddress]) -> list[InterfaceAddress]:
        """Return `here` without the addresses that the list excludes."""
        here = list(here)
        names = {each.interface for each in here}
        return [a for a in here if not any(m(a, names) for m in self._excluded)]

    def chosen_of(
        self, here: Sequence[InterfaceAddress], prefers_ipv6: bool
    ) -> list[InterfaceAddress]:
        """Return the addresses that the list names, in its order.

        There is one address per interface, of the preferred family if possible. The
        list must not be one that only excludes.

        Raises:
            DistNetworkError: the list names no address, or none that is up.
        """
        names = {each.interface for each in here}
        left = self.left_of(here)
        named = [a for m in self._included for a in left if m(a, names)]
        found: dict[str, InterfaceAddress] = {}
        for each in sorted(  # takes the first of each interface; their order stays
            (a for a in named if a.is_up),
            key=lambda a: (a.is_link_local, a.is_ipv6 != prefers_ipv6),
        ):
            found.setdefault(each.interface, each)
        if not found:
            raise DistNetworkError(self._lack(named, here))
        return [
            found[name] for name in dict.fromkeys(a.interface for a in named if a.is_up)
        ]

    def __str__(self) -> str:
        return f"{self._name}={self._text}"

    def _lack(
        self, named: Sequence[InterfaceAddress], here: Sequence[InterfaceAddress]
    ) -> str:
        problem = f"no interface of this machine is one of {self._text!r}"
        if named:
            problem = f"what {self._text!r} names is down"
        return (
            f"environment variable {self._name}: {problem}. This machine has "
            f"{', '.join(map(str, here))}. Name one of these that leads to the other "
            f"hosts, or their network, such as 10.1.0.0/16"
        )

    def _pattern(self, item: str) -> Callable[[InterfaceAddress, set[str]], bool]:
        """Return a test whether `item` means an address, given all interface names."""
        if not item or item[0] == "^" or item == "=":
            raise ValueError(
                f"environment variable {self._name} is {self._text!r}: an item of it "
                f"is empty; it must be names of interfaces, or networks, with commas "
                f"between, as in eth0,10.1.0.0/16 or ^docker,virbr"
            )
        if item[0] == "=":
            return lambda a, _: a.interface == item[1:]
        if item[0].isdigit() or "/" in item or item.count(":") > 1:
            return self._network(item)
        # "eth1" must not match eth10 if there is an eth1.
        return lambda a, names: (
            a.interface == item if item in names else a.interface.startswith(item)
        )

    def _network(self, item: str) -> Callable[[InterfaceAddress, set[str]], bool]:
        import ipaddress  # some milliseconds that others need not take

        try:
            network = ipaddress.ip_network(item, strict=False)
        except ValueError as error:
            raise ValueError(
                f"environment variable {self._name} is {self._text!r}: {item!r} is no "
                f"network: {error}"
            ) from None
        return lambda a, _: ipaddress.ip_address(a.address) in network
