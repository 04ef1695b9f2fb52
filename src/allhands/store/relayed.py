"""RelayedStore: a TCPStore that a process reaches through its launcher's relay.

Where a job has several nodes, each launcher other than that of node 0, which serves the
store, runs a relay (`_C.StoreRelay`). It asks the server for all ranks of its host over
one connection. The ranks notice no difference.
"""

from __future__ import annotations

from datetime import timedelta

from allhands._C import StoreClient
from allhands.settings import Relay
from allhands.store.route import Route
from allhands.store.tcp import TCPStore

__all__ = ["RelayedStore"]

_HERE = "127.0.0.1"


class RelayedStore(TCPStore):
    """The store that is served at `host_name` and `port`, asked through `relay`.

    Raises:
        DistNetworkError: there is no relay, or it has another secret.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None,
        timeout: timedelta,
        relay: Relay,
    ) -> None:
        self._relay = relay
        super().__init__(host_name, port, world_size, timeout=timeout)

    def _connect(self, limit: float | None = None) -> StoreClient:
        limit = self._limit if limit is None else limit
        server = f"{self._host}:{self._port} (through this host's launcher)"
        return StoreClient(_HERE, self._relay.port, self._secret, limit, server)

    def _route(self) -> Route:
        return Route(self._host, self._relay.own_address)
