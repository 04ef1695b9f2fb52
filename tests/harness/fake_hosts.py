"""Fake hosts: network namespaces of this machine, each as good as a host of its own.

A host has its own network (address 10.99.0.1 and up, on a bridge that all share), name,
processes, /dev/shm and boot id; files are those of this machine. Links can be cut, one
way too, and a host can lose its power: then nobody hears of it any more. In place of
the bridge there may be a wire that is late, lossy or has a firewall (`wire.py`).

It takes root, and the programs `unshare` and `nsenter` (util-linux), `mount` and `ip`
(iproute2); `fake_hosts` skips a test where they are missing or forbidden. Nothing
outside the namespaces is touched, so any number of sets may be there at a time. Every
namespace ends with the process that made it, however that ends: its first process waits
for the end of a pipe, and the kernel takes the rest along.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence

import pytest

from harness.ranks import LIMIT

_UNSHARE = [
    *("unshare", "--net", "--uts", "--ipc", "--pid", "--mount"),
    *("--propagation", "private", "--fork", "--kill-child=KILL"),
]
# The shell's own number outside is read while /proc is still the outer one.
_FIRST_PROCESS = """
    set -e
    read pid rest < /proc/self/stat
    mount -t proc proc /proc
    mount -t tmpfs -o size=50% shm /dev/shm
    mount --bind "$2" /proc/sys/kernel/random/boot_id
    hostname "$1"
    ip link set lo up
    echo "$pid"
    exec cat > /dev/null
"""
_NOBODY = "02:00:00:00:00:00"  # no interface has this address


class FakeHost:
    """One of them; `address` is where the others reach it."""

    def __init__(self, name: str, address: str, folder: str) -> None:
        self.name, self.address = name, address
        boot = pathlib.Path(folder, f"{name}.boot_id")
        boot.write_text(f"{uuid.uuid4()}\n")
        self._holder = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", _FIRST_PROCESS, "sh", name, str(boot)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        line = self._holder.stdout.readline()
        if not line:
            _, why = self._holder.communicate(timeout=LIMIT)
            raise OSError(f"cannot make a fake host: {why.strip()}")
        self.pid = int(line)
        """Of its first process, as seen from outside."""

    def enter(self, *command: str) -> list[str]:
        """What runs a command there, in this working directory."""
        flags = ["--net", "--uts", "--ipc", "--pid", "--mount", f"--wd={os.getcwd()}"]
        return ["nsenter", f"--target={self.pid}", *flags, "--", *command]

    def run(self, *command: str) -> str:
        """Run a command there; its output."""
        return _run(self.enter(*command))

    def ip(self, arguments: str) -> str:
        """Run `ip` in its network."""
        command = ["nsenter", f"--target={self.pid}", "--net", "ip"]
        return _run([*command, *arguments.split()])

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

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes; the host itself stays."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End all its processes at once; the kernel still closes their connections."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._holder.communicate(timeout=LIMIT)


class FakeHosts:
    """Some of them on one bridge; use as a context manager."""

    def __init__(self, count: int) -> None:
        self._stack = contextlib.ExitStack()
        try:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            self._switch = self._made("switch", "", folder)
            self.hosts = [
                self._made(f"host{number}", f"10.99.0.{number + 1}", folder)
                for number in range(count)
            ]
            self._connect()
        except BaseException:
            self._stack.close()
            raise

    def _made(self, name: str, address: str, folder: str) -> FakeHost:
        host = FakeHost(name, address, folder)
        self._stack.callback(host.kill)
        return host

    def _connect(self) -> None:
        switch = self._switch
        switch.ip("link add br0 type bridge forward_delay 0 stp_state 0")
        switch.ip("link set br0 up")
        for number, host in enumerate(self.hosts):
            port = f"port{number}"
            switch.ip(f"link add {port} type veth peer name eth0 netns {host.pid}")
            switch.ip(f"link set {port} master br0 up")
            host.ip(f"address add {host.address}/24 dev eth0")
            host.ip("link set eth0 up")

    def __enter__(self) -> FakeHosts:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getitem__(self, number: int) -> FakeHost:
        return self.hosts[number]

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
            self._switch.ip(f"link set {name} nomaster")
        enter = ["nsenter", f"--target={self._switch.pid}", "--net", "--"]
        wire = subprocess.Popen(
            [*enter, sys.executable, "-m", "harness.wire", *options, *names],
            env=os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(wire.communicate, timeout=LIMIT)
        assert wire.stdout is not None
        if wire.stdout.readline() != "ready\n":
            raise OSError("cannot lay a wire between the fake hosts")

    def unplug(self, number: int) -> None:
        """Take a host's cable away."""
        self._switch.ip(f"link set port{number} down")

    def plug(self, number: int) -> None:
        """Take back an `unplug`."""
        self._switch.ip(f"link set port{number} up")

    def power_off(self, number: int) -> None:
        """End a host without a word to anybody."""
        self.unplug(number)
        self[number].kill()


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def _what_is_missing() -> str:
    """Why there can be no fake hosts here; empty: there can."""
    programs = ["unshare", "nsenter", "mount", "ip"]
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        return f"no program {', '.join(missing)}: install iproute2 and util-linux"
    if os.geteuid() != 0:
        return "they take root"
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
