"""What the page on several hosts says of errors is what users read."""

import re
from pathlib import Path

import pytest

from allhands import _C, DistNetworkError, HashStore
from allhands.rendezvous.identity import Identity
from allhands.rendezvous.interfaces import InterfaceAddress, InterfaceList
from allhands.rendezvous.port import Port, open_port
from allhands.rendezvous.roster import Roster
from harness.ports import reserved_port

PAGE = Path(__file__).parents[3] / "docs/howto/several-hosts.md"


@pytest.fixture(scope="module")
def shown():
    """The texts on the page, each in one line."""
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return {" ".join(block.split()) for block in blocks}


def test_an_interface_that_is_not_there(shown):
    here = [
        InterfaceAddress("lo", "127.0.0.1", 8, True, True),
        InterfaceAddress("eth0", "10.0.0.3", 24, True, False),
        InterfaceAddress("eth1", "10.1.0.3", 24, False, False),
    ]
    with pytest.raises(DistNetworkError) as caught:
        InterfaceList("ALLHANDS_INTERFACES", "ib0").chosen_of(here, False)
    assert str(caught.value) in shown


def test_ranks_that_do_not_listen(shown):
    roster = Roster([Identity("a", 1, 1), Identity("b", 1, 1)], b"")
    with pytest.raises(DistNetworkError) as caught:
        roster.port_for([0, 1])
    assert str(caught.value) in shown


def test_ranks_that_listen_beside_others_that_do_not(shown):
    here, there = (Identity(host, 1, 1, endpoints="10.0.0.1:1") for host in "ab")
    deaf = [each._replace(endpoints="") for each in (here, there)]
    port = Port(native=_C.TcpPort(["127.0.0.1"], 0, 0))
    roster = Roster([here, deaf[0], deaf[1], there], b"", port=port)
    with pytest.raises(DistNetworkError) as caught:
        roster.port_for([0, 1, 2, 3])
    port.close()
    assert str(caught.value) in shown


def test_a_range_without_a_free_port(shown, monkeypatch):
    monkeypatch.setenv("ALLHANDS_INTERFACES", "lo")
    with reserved_port() as number:
        monkeypatch.setenv("ALLHANDS_PORT_RANGE", str(number))
        port = open_port(2, HashStore())
        problem = open_port(2, HashStore()).problem
        port.close()
    assert problem.replace(str(number), "29600") in shown
