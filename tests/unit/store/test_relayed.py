"""A store that is reached through a launcher's relay."""

import datetime

import pytest

from allhands import DistNetworkError, DistStoreError, settings
from allhands._C import StoreRelay, StoreServer
from allhands.rendezvous import presence
from allhands.store.relayed import RelayedStore
from harness.ranks import LIMIT

LONG = datetime.timedelta(seconds=LIMIT)


@pytest.fixture
def server():
    return StoreServer("127.0.0.1", 0, settings.secret.get(), LIMIT)


@pytest.fixture
def relay(server):
    return StoreRelay("127.0.0.1", server.port, settings.secret.get(), LIMIT)


def through(relay, server, timeout=LONG):
    place = settings.Relay(relay.port, relay.own_address)
    return RelayedStore("127.0.0.1", server.port, None, timeout, place)


def test_a_host_has_one_connection_to_the_server(server, relay):
    stores = [through(relay, server) for _ in range(10)]
    for rank, store in enumerate(stores):
        presence.enter(store, rank)
        assert store.add("n", 1) == rank + 1
    assert server.traffic().connections == 1
    assert relay.traffic().connections == 20


def test_a_clone_goes_through_the_relay(server, relay):
    clone = through(relay, server).clone()
    clone.set("k", "v")
    assert isinstance(clone, RelayedStore)
    assert clone._route() == through(relay, server)._route()
    assert server.traffic().connections == 1


def test_a_wait_that_ends_leaves_the_store_usable(server, relay):
    store = through(relay, server)
    for _ in range(3):
        with pytest.raises(DistStoreError, match="wait timeout after 20ms, keys: /no"):
            store.wait(["no"], datetime.timedelta(milliseconds=20))
    store.set("no", "v")
    assert store.get("no") == b"v"


def test_a_secret_is_asked_for(server, relay, monkeypatch):
    through(relay, server)
    monkeypatch.setenv("ALLHANDS_SECRET", "another")
    where = rf"127\.0\.0\.1:{server.port} \(through this host's launcher\)"
    with pytest.raises(DistNetworkError, match=where):
        through(relay, server, datetime.timedelta(seconds=5))
    with pytest.raises(DistNetworkError, match="secret"):
        StoreRelay("127.0.0.1", server.port, "another", LIMIT)


def test_without_the_server_there_is_no_relay():
    secret = settings.secret.get()
    server = StoreServer("127.0.0.1", 0, secret, LIMIT)
    relay = StoreRelay("127.0.0.1", server.port, secret, LIMIT)
    store = through(relay, server)
    port = server.port
    del server
    lost = rf"lost the store server at 127\.0\.0\.1:{port} \(through this host's"
    with pytest.raises(DistNetworkError, match=lost):
        store.get("never")
    with pytest.raises(DistNetworkError, match="timed out after 50ms"):
        StoreRelay("127.0.0.1", port, secret, 0.05)
