"""Stores of every kind."""

import datetime

from allhands import FileStore, HashStore, PrefixStore, TCPStore, settings
from allhands._C import StoreRelay, StoreServer
from allhands.store.relayed import RelayedStore
from harness.ranks import LIMIT
from harness.stores import DictStore, LeastStore

SHORT = datetime.timedelta(milliseconds=30)
LONG = datetime.timedelta(seconds=LIMIT)


def make_hash(tmp_path):
    return HashStore()


def make_file(tmp_path):
    return FileStore(str(tmp_path / "store"))


def make_tcp(tmp_path):
    return TCPStore("127.0.0.1", 0, is_master=True)


class ServedHere(RelayedStore):
    """With the server and the relay in this process."""

    def __init__(self):
        secret = settings.secret.get()
        self.server = StoreServer("127.0.0.1", 0, secret, LIMIT)
        relay = StoreRelay("127.0.0.1", self.server.port, secret, LIMIT)
        self.relay = relay
        place = settings.Relay(relay.port, relay.own_address)
        super().__init__("127.0.0.1", self.server.port, None, LONG, place)


def make_relayed(tmp_path):
    return ServedHere()


def make_user_written(tmp_path):
    return DictStore()


def make_least(tmp_path):
    return LeastStore()


STORES = {
    "hash": make_hash,
    "file": make_file,
    "tcp": make_tcp,
    "relayed": make_relayed,
    "user-written": make_user_written,
    "least": make_least,
}
MAKERS = STORES | {
    f"prefix-{name}": lambda tmp_path, make=make: PrefixStore("p", make(tmp_path))
    for name, make in STORES.items()
}


def full(store, key):
    """The key as messages show it: with the prefix, and a slash before it."""
    return f"/p/{key}" if isinstance(store, PrefixStore) else f"/{key}"
