"""Fake hosts: network namespaces of this machine, each as good as a host of its own.

A fake host has its own network (address 10.99.0.1 and up, on a bridge that all share),
name, processes, /dev/shm and boot id; its files are those of this machine. Its TCP uses
the congestion control of most hosts, cubic, whatever this machine uses, or reno where
the kernel does not allow cubic.

Making fake hosts takes root, and the programs `unshare` and `nsenter` (util-linux),
`mount` and `ip` (iproute2). Nothing outside the namespaces is changed, so any number of
sets may exist at a time. Every namespace ends with the process that made it, even if
that process is killed: the namespace's first process waits for the end of a pipe, and
when it exits the kernel kills the other processes of the namespace.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = [
    "INTERFACE",
    "MOST",
    "FakeHost",
    "FakeHosts",
    "address_of",
    "what_is_missing",
]

INTERFACE = "eth0"
MOST = 250  # hosts of a set
_SWITCH = "10.99.0.254"
_LIMIT_S = 60.0  # many times what any step takes
_PROGRAMS = ("unshare", "nsenter", "mount", "ip")
_UNSHARE = [
    *("unshare", "--net", "--uts", "--ipc", "--pid", "--mount"),
    *("--propagation", "private", "--fork", "--kill-child=KILL"),
]
# The first line reads the shell's pid outside the namespace, as /proc is still the
# outer one at that point.
_FIRST_PROCESS = """
    set -e
    read pid rest < /proc/self/stat
    mount -t proc proc /proc
    mount -t tmpfs -o size=50% shm /dev/shm
    mount --bind "$2" /proc/sys/kernel/random/boot_id
    hostname "$1"
    ip link set lo up
    control=/proc/sys/net/ipv4/tcp_congestion_control
    { echo cubic > $control || echo reno > $control || true; } 2> /dev/null
    echo "$pid" "$(cat $control)"
    exec cat > /dev/null
"""


def address_of(number: int) -> str:
    """Return the address of the host with this number, counted from 0."""
    return f"10.99.0.{number + 1}"


def what_is_missing() -> str:
    """Say why fake hosts cannot be made here, with the remedy; empty if unknown."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no program {', '.join(missing)}; install iproute2 and util-linux"
    if os.geteuid() != 0:
        return "network namespaces take root; run it by sudo, or as root in a container"
    return ""


class FakeHost:
    """One fake host, which the others reach at `address`."""

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
            _, why = self._holder.communicate(timeout=_LIMIT_S)
            raise OSError(
                f"cannot make a fake host: {why.strip()}; it takes the right to make "
                "namespaces, which a container has if it is started as privileged"
            )
        pid, self.congestion_control = line.split()
        self.pid = int(pid)
        """The pid of the host's first process, as seen from outside."""

    def enter(self, *command: str) -> list[str]:
        """Return the command that runs `command` there, in this working directory."""
        flags = ["--net", "--uts", "--ipc", "--pid", "--mount", f"--wd={os.getcwd()}"]
        return ["nsenter", f"--target={self.pid}", *flags, "--", *command]

    def reach(self, *command: str) -> list[str]:
        """Return the command that runs a program of this machine in the host's network.

        The program sees the host's name too, but the processes and files of this
        machine.
        """
        return ["nsenter", f"--target={self.pid}", "--net", "--uts", "--", *command]

    def run(self, *command: str) -> str:
        """Run a command on the host and return its output."""
        return _run(self.enter(*command))

    def ip(self, arguments: str) -> str:
        """Run `ip` in the host's network."""
        return _run(self.reach("ip", *arguments.split()))

    def kill(self) -> None:
        """Kill all its processes at once; the kernel still closes their connections."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._holder.communicate(timeout=_LIMIT_S)


class FakeHosts:
    """Some fake hosts on one bridge, which belongs to `switch`; a context manager.

    The switch's name is its address, so that a program that runs on the switch can give
    the hosts either of them as its own address.
    """

    host_class: ClassVar[type[FakeHost]] = FakeHost

    def __init__(self, count: int) -> None:
        self._stack = contextlib.ExitStack()
        try:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            self.switch = self._made(_SWITCH, _SWITCH, folder)
            self.hosts = [
                self._made(f"host{number}", address_of(number), folder)
                for number in range(count)
            ]
            self._connect()
        except BaseException:
            self._stack.close()
            raise

    def _made(self, name: str, address: str, folder: str) -> FakeHost:
        host = self.host_class(name, address, folder)
        self._stack.callback(host.kill)
        return host

    def _connect(self) -> None:
        switch = self.switch
        switch.ip("link add br0 type bridge forward_delay 0 stp_state 0")
        switch.ip(f"address add {switch.address}/24 dev br0")
        switch.ip("link set br0 up")
        for number, host in enumerate(self.hosts):
            port = f"port{number}"
            switch.ip(
                f"link add {port} type veth peer name {INTERFACE} netns {host.pid}"
            )
            switch.ip(f"link set {port} master br0 up")
            host.ip(f"address add {host.address}/24 dev {INTERFACE}")
            host.ip(f"link set {INTERFACE} up")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return len(self.hosts)

    def __getitem__(self, number: int) -> FakeHost:
        return self.hosts[number]

    def host_of(self, rank: int, size: int) -> int:
        """Return the number of a rank's host: the first ranks are on the first."""
        return rank * len(self) // size


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
