"""The port at which a process listens for ranks of other hosts."""

import contextlib
import socket

import pytest

from allhands import _C
from allhands.errors import DistNetworkError


def test_a_port_listens_on_each_of_its_hosts():
    port = _C.TcpPort(["127.0.0.1", "127.0.0.2"], 0, 0)
    numbers = set()
    for host, endpoint in zip(
        ["127.0.0.1", "127.0.0.2"], port.endpoints(), strict=True
    ):
        assert endpoint.startswith(f"{host}:")
        numbers.add(int(endpoint.rpartition(":")[2]))
        socket.create_connection((host, max(numbers)), timeout=30).close()
    assert len(numbers) == 1
    port.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", max(numbers)), timeout=30)
    port.close()


def test_a_stranger_is_shown_out():
    port = _C.TcpPort(["127.0.0.1"], 0, 0)
    port.start(bytes(32))
    address = ("127.0.0.1", int(port.endpoints()[0].rpartition(":")[2]))
    with socket.create_connection(address, timeout=30) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    port.close()


def test_a_range_of_ports_is_used_up():
    first = _C.TcpPort(["127.0.0.1"], 0, 0)
    number = int(first.endpoints()[0].rpartition(":")[2])
    with pytest.raises(
        DistNetworkError, match=rf"no port of \[{number}, {number}\] is free"
    ):
        _C.TcpPort(["127.0.0.1"], number, number)


@pytest.mark.parametrize(
    ("hosts", "first", "last", "heartbeat", "message"),
    [
        ([], 0, 0, 5.0, "got 0 hosts"),
        (["127.0.0.1"], 5, 4, 5.0, r"ports \[5, 4\]"),
        (["somewhere"], 0, 0, 5.0, "'somewhere' is no IP address"),
        (["127.0.0.1"], 0, 0, -1.0, "heartbeat must be"),
        (["127.0.0.1"], 0, 0, float("nan"), "heartbeat must be"),
        (["127.0.0.1"], 0, 0, 0.01, "at least 0.1 s"),
    ],
)
def test_arguments_that_make_no_sense(hosts, first, last, heartbeat, message):
    with pytest.raises(ValueError, match=message):
        _C.TcpPort(hosts, first, last, heartbeat=heartbeat)


def test_an_address_of_another_machine():
    with pytest.raises(DistNetworkError, match=r"listen at 192\.0\.2\.1:0"):
        _C.TcpPort(["192.0.2.1"], 0, 0)


def test_a_port_starts_once_with_a_whole_secret():
    port = _C.TcpPort(["127.0.0.1"], 0, 0)
    with pytest.raises(ValueError, match="has 32 bytes, got 3"):
        port.start(b"abc")
    port.start(bytes(32))
    with pytest.raises(ValueError, match="was started before"):
        port.start(bytes(32))
