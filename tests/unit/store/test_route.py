"""By which address a process reaches its store."""

import pytest

from allhands import FileStore, HashStore, PrefixStore, TCPStore
from allhands.store.route import Route
from harness.stores import LeastStore


def test_no_network_leads_to_memory_and_files(tmp_path):
    for store in (HashStore(), FileStore(str(tmp_path / "store"))):
        assert PrefixStore("a", store)._route() == Route()
    assert Route().stays_here


def test_a_server_is_reached_from_an_address():
    store = TCPStore("127.0.0.1", 0, is_master=True)
    assert PrefixStore("a", store)._route() == Route("127.0.0.1", "127.0.0.1")
    assert store.clone()._route() == store._route()


def test_nothing_is_known_of_a_store_of_the_user():
    assert PrefixStore("a", LeastStore())._route() is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_the_loopback_leads_nowhere_else(host):
    assert Route(host, "127.0.0.1").stays_here


@pytest.mark.parametrize("host", ["node-0", "10.0.0.3", "0.0.0.0", "::"])
def test_a_name_that_means_the_loopback_here_may_mean_more(host):
    assert not Route(host, "127.0.0.1").stays_here
