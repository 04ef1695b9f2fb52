"""Fake hosts that fail: links can be cut, one way too, and a host can lose its power.

Then nobody hears of it any more. In place of the bridge there may be a wire that is
late, lossy or has a firewall (`wire.py`). `fake_hosts` skips a test where there can be
no fake hosts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from allhands.bench import fake_hosts as machinery
from harness.ranks import LIMIT

_NOBODY = "02:00:00:00:00:00"  # no interface has this address


class FakeHost(machinery.FakeHost):
    """One of them."""

    @property
    def link_address(self) -> str:
        """The hardware address of its interface."""
        return self.ip("-brief link show dev eth0").split()[2]

    def pids(self) -> list[int]:
        """Its processes, as seen from outside, without the first, which keeps it."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # it has ended
                if os.readlink(f"/proc/{name}/ns/pid") == space:
                    found.append(int(name))
        return sorted(set(found) - {self.pid})

    def break_connections(self, first: int, last: int) -> int:
        """Abort its TCP connections from or to one of these ports, at both ends.

        Returns how many those were.
        """
        ends = [
            f"( {end} >= :{first} and {end} <= :{last} )" for end in ("sport", "dport")
        ]
        return self._break(" or ".join(ends))

    def break_connections_to(self, network: str) -> int:
        """Abort its TCP connections to hosts in this network, in the same way."""
        return self._break(f"dst {network}")

    def _break(self, which: str) -> int:
        command = self.reach("ss", "-H", "-K", "-t", which)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return len(done.stdout.splitlines())

    def num_received(self, interface: str) -> int:
        """How many bytes have come in there."""
        shown = json.loads(self.ip(f"-json -statistics link show dev {interface}"))
        return int(shown[0]["stats64"]["rx"]["bytes"])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes; the host itself stays."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class FakeHosts(machinery.FakeHosts):
    """Some of them on one bridge; use as a context manager."""

    host_class = FakeHost

    def cut(self, sender: int, receiver: int) -> None:
        """Lose silently from now on what `sender` sends to `receiver`; one way."""
        self._set_way(sender, receiver, _NOBODY)

    def heal(self, sender: int, receiver: int) -> None:
        """Take back a cut."""
        self._set_way(sender, receiver, self[receiver].link_address)

    def _set_way(self, sender: int, receiver: int, link_address: str) -> None:
        address = self[receiver].address
        self[sender].ip(
            f"neighbour replace {address} lladdr {link_address} dev eth0 nud permanent"
        )

    def lay_wire(self, *options: str) -> None:
        """Have all frames go over a wire of these options, see `wire.py`, for good."""
        names = [f"port{number}" for number in range(len(self.hosts))]
        for name in names:
            self.switch.ip(f"link set {name} nomaster")
        wire = subprocess.Popen(
            self.switch.reach(
                *(sys.executable, "-m", "harness.wire", *options, *names)
            ),
            env=os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(wire.communicate, timeout=LIMIT)
        assert wire.stdout is not None
        if wire.stdout.readline() != "ready\n":
            raise OSError("cannot lay a wire between the fake hosts")

    def add_network(self) -> None:
        """Give each host a second interface, eth1, on a bridge of its own."""
        self.switch.ip("link add br1 type bridge forward_delay 0 stp_state 0")
        self.switch.ip("link set br1 up")
        for number, host in enumerate(self.hosts):
            port = f"second{number}"
            self.switch.ip(f"link add {port} type veth peer name eth1 netns {host.pid}")
            self.switch.ip(f"link set {port} master br1 up")
            host.ip(f"address add 10.98.0.{number + 1}/24 dev eth1")
            host.ip("link set eth1 up")

    def unplug(self, number: int) -> None:
        """Take a host's cable away."""
        self.switch.ip(f"link set port{number} down")

    def plug(self, number: int) -> None:
        """Take back an `unplug`."""
        self.switch.ip(f"link set port{number} up")

    def power_off(self, number: int) -> None:
        """End a host without a word to anybody."""
        self.unplug(number)
        self[number].kill()


@functools.cache
def _what_is_missing() -> str:
    """Why there can be no fake hosts here; empty: there can."""
    if why := machinery.what_is_missing():
        return why
    try:
        FakeHosts(2).__exit__()
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""


def fake_hosts(count: int) -> FakeHosts:
    """Make some; skips the test where that cannot be."""
    if why := _what_is_missing():
        pytest.skip(f"no fake hosts here: {why}")
    return FakeHosts(count)
