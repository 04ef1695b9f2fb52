"""At which addresses a rank listens for ranks of other hosts."""

import pytest

from allhands import DistNetworkError
from allhands.rendezvous import address_choice
from allhands.rendezvous.address_choice import addresses_to_listen_at
from allhands.rendezvous.interfaces import InterfaceAddress
from allhands.store.route import Route

HERE = [
    InterfaceAddress("lo", "127.0.0.1", 8, True, True),
    InterfaceAddress("docker0", "172.17.0.1", 16, True, False),
    InterfaceAddress("eth9", "192.168.99.1", 24, False, False),
    InterfaceAddress("eth0", "10.0.0.3", 24, True, False),
    InterfaceAddress("eth1", "10.1.0.3", 24, True, False),
    InterfaceAddress("eth1", "fd00::3", 64, True, False),
]
NAME = "node-3"


@pytest.fixture
def machine(monkeypatch):
    """What this machine has, and where ways lead to from it."""
    ways = {}
    here = [*HERE]
    for name in ("ALLHANDS_INTERFACES", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(address_choice, "addresses_here", lambda: here)
    monkeypatch.setattr(address_choice, "_towards", lambda host: ways.get(host, []))
    return here, ways


def test_it_is_the_one_by_which_the_store_was_reached(machine):
    _, ways = machine
    ways["203.0.113.1"] = ["10.1.0.3"]
    assert addresses_to_listen_at(Route("node-0", "10.0.0.3")) == ["10.0.0.3"]
    assert addresses_to_listen_at(Route("node-0", "fd00::3")) == ["fd00::3"]


def test_a_name_that_means_the_loopback_does_not_mislead(machine):
    """The store is on this host, whose hosts file begins with 127.0.1.1."""
    _, ways = machine
    ways[NAME] = ["127.0.0.1", "10.1.0.3"]
    ways["203.0.113.1"] = ["10.0.0.3"]
    assert addresses_to_listen_at(Route(NAME, "127.0.0.1")) == ["10.1.0.3"]
    ways[NAME] = ["127.0.0.1"]
    assert addresses_to_listen_at(Route(NAME, "127.0.0.1")) == ["10.0.0.3"]


def test_where_no_way_leads_out_it_is_no_bridge_and_nothing_down(machine):
    assert addresses_to_listen_at(None) == ["10.0.0.3"]


def test_hosts_in_name_only_meet_on_the_loopback(machine):
    assert addresses_to_listen_at(Route("localhost", "127.0.0.1")) == ["127.0.0.1"]
    here, _ = machine
    del here[1:]
    assert addresses_to_listen_at(Route()) == ["127.0.0.1"]


def test_the_first_variable_that_is_set_holds(machine, monkeypatch):
    route = Route("node-0", "10.0.0.3")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "docker0")
    assert addresses_to_listen_at(route) == ["172.17.0.1"]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert addresses_to_listen_at(route) == ["10.1.0.3"]
    assert addresses_to_listen_at(Route("node-0", "fd00::3")) == ["fd00::3"]
    monkeypatch.setenv("ALLHANDS_INTERFACES", "eth")
    assert addresses_to_listen_at(route) == ["10.0.0.3", "10.1.0.3"]
    monkeypatch.setenv("ALLHANDS_INTERFACES", "")
    assert addresses_to_listen_at(route) == ["10.1.0.3"]


def test_what_is_excluded_is_not_taken(machine, monkeypatch):
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "^eth0,docker")
    assert addresses_to_listen_at(Route("node-0", "10.0.0.3")) == ["10.1.0.3"]


def test_who_excludes_all_learns_what_was_tried(machine, monkeypatch):
    _, ways = machine
    ways["203.0.113.1"] = ["10.0.0.3"]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "^lo,eth,docker")
    with pytest.raises(DistNetworkError) as caught:
        addresses_to_listen_at(Route("node-0", "10.0.0.3"))
    text = str(caught.value)
    assert "no address that GLOO_SOCKET_IFNAME=^lo,eth,docker leaves" in text
    assert "Tried: the address by which the store was reached (10.0.0.3), " in text
    assert "what 'node-0' means (nothing), " in text
    assert "where the way to 203.0.113.1 starts (10.0.0.3), " in text
    assert "It has lo 127.0.0.1/8, docker0 172.17.0.1/16, eth9 " in text
    assert "Set ALLHANDS_INTERFACES to the name or network" in text


def test_this_machine_has_an_address():
    [address] = addresses_to_listen_at(None)
    assert address
