"""Key-value stores, through which ranks find each other. Each file holds one store."""

from allhands.store.base import Store
from allhands.store.file import FileStore
from allhands.store.hash import HashStore
from allhands.store.prefix import PrefixStore
from allhands.store.tcp import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
