"""Which addresses a list of interfaces means."""

import pytest

from allhands import DistNetworkError
from allhands.rendezvous.interfaces import (
    InterfaceAddress,
    InterfaceList,
    addresses_here,
)


def address(interface, text, bits=24, is_up=True, is_loopback=False):
    return InterfaceAddress(interface, text, bits, is_up, is_loopback)


HERE = [
    address("lo", "127.0.0.1", 8, is_loopback=True),
    address("eth1", "10.0.1.3"),
    address("eth10", "10.0.10.3"),
    address("ib0", "10.1.0.3", 16),
    address("ib1", "10.1.1.3", 16, is_up=False),
    address("docker0", "172.17.0.1", 16),
    address("eth1", "fd00::3", 64),
    address("eth1", "fe80::3%eth1", 64),
    address("ib0", "fe80::4%ib0", 64),
]


def chosen(text, prefers_ipv6=False):
    found = InterfaceList("NAME", text).chosen_of(HERE, prefers_ipv6)
    return [each.address for each in found]


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("eth1", ["10.0.1.3"]),  # not eth10
        ("=eth1", ["10.0.1.3"]),
        ("eth", ["10.0.1.3", "10.0.10.3"]),
        ("ib,eth10", ["10.1.0.3", "10.0.10.3"]),
        ("ib0, eth1", ["10.1.0.3", "10.0.1.3"]),
        ("ib0,ib", ["10.1.0.3"]),
        ("eth,^eth10", ["10.0.1.3"]),
        ("10.0.0.0/16", ["10.0.1.3", "10.0.10.3"]),
        ("10.0.10.3", ["10.0.10.3"]),
        ("fd00::/8", ["fd00::3"]),
        ("fe80::/10", ["fe80::3%eth1", "fe80::4%ib0"]),
        ("lo", ["127.0.0.1"]),
        ("127.0.0.0/8", ["127.0.0.1"]),
    ],
)
def test_what_a_list_means(text, addresses):
    assert chosen(text) == addresses


def test_of_an_interface_it_is_one_address():
    assert chosen("eth1", prefers_ipv6=True) == ["fd00::3"]
    assert chosen("ib0", prefers_ipv6=True) == ["10.1.0.3"]  # no other for other hosts


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("^docker", ["lo", "eth1", "eth10", "ib0", "ib1"]),
        ("^eth1,docker", ["lo", "eth10", "ib0", "ib1"]),
        ("^eth,^=lo,10.1.0.0/16,172.16.0.0/12", ["ib0"]),
        ("^ib,docker,10.0.0.0/16,fd00::/8,lo", ["eth1"]),
    ],
)
def test_what_a_list_leaves(text, left):
    listed = InterfaceList("NAME", text)
    assert listed.only_excludes
    found = listed.left_of(HERE)
    assert list(dict.fromkeys(each.interface for each in found)) == left


@pytest.mark.parametrize("text", [",", "eth0,", "=", "^", "eth0,^^eth1", "^,eth0"])
def test_a_list_with_nothing_in_it_is_refused(text):
    with pytest.raises(ValueError, match="an item of it is empty; it must"):
        InterfaceList("NAME", text)


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0", "fd00::/x", "eth0/8"])
def test_a_network_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=f"NAME is .*'{text}' is no network"):
        InterfaceList("NAME", text)


def test_who_names_nothing_that_there_is_learns_what_there_is():
    with pytest.raises(DistNetworkError) as caught:
        chosen("eno,=eth")
    text = str(caught.value)
    assert "variable NAME: no interface of this machine is one of 'eno,=eth'" in text
    assert "lo 127.0.0.1/8, eth1 10.0.1.3/24, " in text
    assert "ib1 10.1.1.3/16 (down)" in text
    with pytest.raises(DistNetworkError, match="NAME: what 'ib1' names is down"):
        chosen("ib1")


def test_this_machine_has_a_loopback():
    assert address("lo", "127.0.0.1", 8, is_loopback=True) in addresses_here()
