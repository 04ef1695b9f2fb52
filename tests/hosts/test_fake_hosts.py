"""The fake hosts are what tests between hosts take them for."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from harness import fake_hosts as machinery
from harness.fake_hosts import fake_hosts
from harness.launcher import wait_until
from harness.ranks import LIMIT

LISTEN = """
    import socket, sys
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taking:
        taking.bind((sys.argv[1], 5000))
        print("listens", flush=True)
        while True:
            print(taking.recv(99).decode(), flush=True)
"""
SEND = """
    import socket, sys
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.sendto(sys.argv[2].encode(), (sys.argv[1], 5000))
"""


@pytest.fixture
def hosts():
    with fake_hosts(2) as made:
        yield made


def python(host, text, *arguments):
    return host.enter(sys.executable, "-c", textwrap.dedent(text), *arguments)


@contextlib.contextmanager
def listening(host):
    command = python(host, LISTEN, host.address)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "listens\n"
        try:
            yield process.stdout
        finally:
            host.kill()


def send(sender, receiver, text):
    subprocess.run(python(sender, SEND, receiver.address, text), check=True)


def test_each_is_a_host_of_its_own(hosts):
    identify = "from allhands._C import process_identity as i; print(i()[0], i()[1])"
    names = [host.run("hostname").strip() for host in hosts.hosts]
    assert names == ["host0", "host1"]
    told = [host.run(sys.executable, "-c", identify).split() for host in hosts.hosts]
    here = subprocess.check_output([sys.executable, "-c", identify], text=True).split()
    assert len({told[0][0], told[1][0], here[0]}) == 3
    assert all(int(pid) < 100 for _, pid in told)  # the processes are its own
    assert hosts[0].run("ls", "/dev/shm") == ""


def test_a_cut_is_one_way_and_heals(hosts):
    with listening(hosts[0]) as first, listening(hosts[1]) as second:
        send(hosts[0], hosts[1], "there")
        assert second.readline() == "there\n"
        hosts.cut(0, 1)
        send(hosts[0], hosts[1], "lost")
        send(hosts[1], hosts[0], "back")
        assert first.readline() == "back\n"
        hosts.heal(0, 1)
        send(hosts[0], hosts[1], "again")
        assert second.readline() == "again\n"
        hosts.unplug(1)
        send(hosts[0], hosts[1], "lost")
        hosts.plug(1)
        send(hosts[0], hosts[1], "plugged in")
        assert second.readline() == "plugged in\n"


def test_nothing_is_left_when_the_test_is_killed():
    text = """
        import os, signal, subprocess
        from harness.fake_hosts import fake_hosts
        with fake_hosts(2) as hosts:
            for host in hosts.hosts:
                subprocess.Popen(host.enter("sleep", "999"))
            print(*(host.pid for host in hosts.hosts), flush=True)
            signal.pause()
    """
    with fake_hosts(1):  # or skip
        pass
    command = [sys.executable, "-c", textwrap.dedent(text)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as job:
        pids = [int(pid) for pid in job.stdout.readline().split()]
        spaces = {os.readlink(f"/proc/{pid}/ns/net") for pid in pids}
        assert len(spaces) == 2
        assert spaces <= namespaces()
        job.send_signal(signal.SIGKILL)
        job.wait(LIMIT)
    wait_until(lambda: not spaces & namespaces(), 30, "the end of the hosts")


def namespaces():
    """The networks in which there are processes."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            found.add(os.readlink(f"/proc/{name}/ns/net"))
    return found


def test_a_machine_that_is_too_slow_for_them_has_none(monkeypatch):
    def too_slow(_):
        raise subprocess.TimeoutExpired("ip", 7)

    monkeypatch.setattr(machinery, "FakeHosts", too_slow)
    assert machinery._what_is_missing.__wrapped__()
