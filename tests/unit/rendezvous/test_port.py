"""The port at which ranks of other hosts reach this process."""

import socket
import subprocess
import sys
from contextlib import closing

import pytest

from allhands import DistNetworkError, HashStore, PrefixStore
from allhands.rendezvous import port as port_module
from allhands.rendezvous.endpoints import are_endpoints
from allhands.rendezvous.identity import Identity
from allhands.rendezvous.port import Port, may_span_hosts, open_port
from allhands.rendezvous.roster import Roster
from allhands.store.route import Route
from harness.ports import reserved_port
from harness.stores import LeastStore

VARIABLES = (
    *("ALLHANDS_HOST_ID", "ALLHANDS_INTERFACES", "ALLHANDS_ADVERTISE"),
    *("ALLHANDS_PORT_RANGE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ALLHANDS_TLS", "ALLHANDS_SECRET"),
)


class Reached(HashStore):
    """A store that was reached by this route."""

    def __init__(self, *route):
        super().__init__()
        self.route = Route(*route)

    def _route(self):
        return self.route


FAR = Reached("node-0", "10.0.0.3")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_the_way_to_the_store_tells_whether_ranks_may_be_elsewhere():
    assert may_span_hosts(2, FAR)
    assert may_span_hosts(2, PrefixStore("a", FAR))
    assert may_span_hosts(2, LeastStore())
    assert may_span_hosts(2, Reached("node-0", "127.0.0.1"))
    assert not may_span_hosts(2, Reached("localhost", "127.0.0.1"))
    assert not may_span_hosts(2, HashStore())
    assert not may_span_hosts(1, FAR)


def test_a_launcher_that_started_all_ranks_here_knows(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    monkeypatch.setenv("ALLHANDS_INTERFACES", "eth0")
    assert not may_span_hosts(4, FAR)
    assert not may_span_hosts(2, FAR)
    assert may_span_hosts(5, FAR)  # with some of another job
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert may_span_hosts(4, HashStore())


def test_ranks_with_a_host_id_may_be_elsewhere_whoever_started_them(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("ALLHANDS_HOST_ID", "a")
    assert may_span_hosts(2, HashStore())
    assert not may_span_hosts(1, HashStore())


@pytest.mark.parametrize("name", ["ALLHANDS_INTERFACES", "NCCL_SOCKET_IFNAME"])
def test_who_names_interfaces_may_have_ranks_elsewhere(monkeypatch, name):
    monkeypatch.setenv(name, "eth0")
    assert may_span_hosts(2, HashStore())


def test_nothing_listens_where_all_ranks_are_here(monkeypatch):
    monkeypatch.setenv("ALLHANDS_PORT_RANGE", "1-65535")
    port = open_port(2, HashStore())
    assert port == Port()
    assert port.endpoints == ""
    port.close()


def test_it_listens_at_a_port_of_the_range(monkeypatch):
    with reserved_port() as number:
        monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
        monkeypatch.setenv("ALLHANDS_PORT_RANGE", str(number))
        port = open_port(2, HashStore())
        assert port.endpoints == f"127.0.0.1:{number}"
        socket.create_connection(("127.0.0.1", number), 60).close()
        second = open_port(2, HashStore())
        assert second.endpoints == ""
        assert f"no port of [{number}, {number}] is free" in second.problem
        port.close()
        third = open_port(2, HashStore())
        assert third.endpoints == port.endpoints
        third.close()


def test_it_is_known_at_the_address_that_is_advertised(monkeypatch):
    monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
    monkeypatch.setenv("ALLHANDS_ADVERTISE", "203.0.113.7,[2001:db8::7]:4471")
    with closing(open_port(2, HashStore())) as port:
        first, second = port.endpoints.split(",")
        assert second == "[2001:db8::7]:4471"
        host, number = first.split(":")
        assert host == "203.0.113.7"
        socket.create_connection(("127.0.0.1", int(number)), 60).close()


def test_it_tells_of_as_many_addresses_as_the_others_take(monkeypatch):
    full = [f"2001:db8:1111:2222:3333:4444:5555:{n}" for n in range(6660, 6672)]
    monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
    monkeypatch.setenv("ALLHANDS_ADVERTISE", ",".join(full))
    with closing(open_port(2, HashStore())) as port:
        assert are_endpoints(port.endpoints)
        told = [place.rpartition(":")[0] for place in port.endpoints.split(",")]
    assert told == [f"[{address}]" for address in full[:10]]
    monkeypatch.delenv("ALLHANDS_ADVERTISE")
    many = [f"127.{a}.100.100" for a in range(101, 201)]
    monkeypatch.setattr(port_module, "addresses_to_listen_at", lambda route: many)
    with closing(open_port(2, HashStore())) as port:
        assert are_endpoints(port.endpoints)
        told = [place.rpartition(":")[0] for place in port.endpoints.split(",")]
    assert told == many[: len(told)]
    assert len(told) == 23


def test_encryption_takes_a_secret(monkeypatch):
    monkeypatch.setenv("ALLHANDS_TLS", "1")
    assert open_port(2, HashStore()) == Port()  # nobody is elsewhere
    monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
    with pytest.raises(
        ValueError, match="ALLHANDS_SECRET is not set: set it to the same"
    ):
        open_port(2, HashStore())
    monkeypatch.setenv("ALLHANDS_SECRET", "a")
    open_port(2, HashStore()).close()


def test_encryption_takes_openssl(monkeypatch, tmp_path):
    (tmp_path / "libssl.so.3").write_text("no library")
    program = """
from allhands import _C, DistBackendError
try:
    _C.TcpPort(["127.0.0.1"], 0, 0, is_encrypted=True)
except DistBackendError as error:
    print(error)
"""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "OpenSSL 3 cannot be loaded (" in told.stdout
    assert "unset ALLHANDS_TLS" in told.stdout


def test_it_ends_with_whoever_holds_it(monkeypatch):
    monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
    port = open_port(2, HashStore())
    number = int(port.endpoints.rpartition(":")[2])
    del port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", number), 60)


def test_an_interface_that_there_is_not_matters_only_where_ranks_are_elsewhere(
    monkeypatch,
):
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "nosuch")
    port = open_port(2, HashStore())
    assert port.native is None
    me = Identity("a", 1, 1)
    assert Roster([me, me], b"", port).port_for([0, 1]) is None
    roster = Roster([me, Identity("b", 1, 1, "10.0.0.3:1")], b"", port)
    assert roster.port_for([0]) is None
    with pytest.raises(DistNetworkError) as caught:
        roster.port_for([0, 1])
    text = str(caught.value)
    assert "a group of 2 ranks on 2 hosts has some that do not listen" in text
    assert "[0]: environment variable NCCL_SOCKET_IFNAME: no interface" in text


def test_who_listens_is_not_told_what_only_others_could_not_do(monkeypatch):
    monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
    port = open_port(2, HashStore())
    members = [Identity("a", 1, 1, port.endpoints), Identity("b", 1, 1)]
    with pytest.raises(DistNetworkError) as caught:
        Roster(members, b"", port).port_for([0, 1])
    assert "hosts, [1]: this rank does; their own errors say why" in str(caught.value)


def test_who_could_not_know_of_other_hosts_learns_what_to_set():
    roster = Roster([Identity("a", 1, 1), Identity("b", 1, 1)], b"")
    with pytest.raises(
        DistNetworkError,
        match=r"\[0, 1\]: .*, set ALLHANDS_HOST_ID to .* and ALLHANDS_INTERFACES to",
    ):
        roster.port_for([0, 1])
