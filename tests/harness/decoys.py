"""Fake hosts that mislead who looks for the way to them."""

import pathlib

from harness.fake_hosts import FakeHosts


def mislead(hosts: FakeHosts, folder: pathlib.Path) -> None:
    """Give each a bridge of containers, a dead interface, one more network that is
    alike on all, and its own name for 127.0.1.1. `folder`: for what they read.
    """
    for number, host in enumerate(hosts.hosts):
        host.ip("route add default dev eth0")
        host.ip("link add docker0 type bridge")
        host.ip("address add 172.17.0.1/16 dev docker0")
        host.ip("link set docker0 up")
        host.ip("link add eth9 type veth peer name eth9p")
        host.ip(f"address add 192.168.99.{number + 1}/24 dev eth9")
        host.ip("link set eth9 up")
        host.ip("link add net1 type bridge")
        host.ip("link add net1p type veth peer name net1q")
        host.ip("link set net1p master net1 up")
        host.ip("link set net1q up")
        host.ip("address add 192.168.7.1/24 dev net1")
        host.ip("link set net1 up")
        names = folder / f"{host.name}.names"
        lines = [
            f"{'127.0.1.1' if other is host else other.address} {other.name}\n"
            for other in hosts.hosts
        ]
        names.write_text("127.0.0.1 localhost\n" + "".join(lines))
        host.run("mount", "--bind", str(names), "/etc/hosts")
