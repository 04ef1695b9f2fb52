"""TCPStore: a store that one process serves to all processes of a job.

Server and client are native (`_C.StoreServer`, `_C.StoreClient`). The server is one
thread that never takes the GIL, so it serves while its process computes. A store holds
its client and, on the master, its server. Both end with the last store that holds them.
Nothing here waits in Python, but for the system to tell whether a server is reached.
"""

from __future__ import annotations

import operator
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn
from weakref import WeakValueDictionary

from allhands import settings
from allhands._C import StoreClient, StoreLastWill, StoreServer
from allhands.errors import DistNetworkError
from allhands.options import as_timedelta, to_seconds
from allhands.store.arguments import (
    as_bytes,
    as_int64,
    as_items,
    as_key,
    as_keys,
    as_port,
    as_world_size,
)
from allhands.store.base import Store
from allhands.store.limits import DEFAULT_TIMEOUT
from allhands.store.route import Route

__all__ = ["TCPStore"]

# The limit for a master to reach its own server, which listens already. An obstacle
# does not go away by itself.
_OWN_SERVER_LIMIT_S = 5.0
_PROBE_LIMIT_S = 1.0  # for the system alone, which answers at once

# The server has just answered, so this is ample.
_LAST_WILL_LIMIT_S = 5.0


class TCPStore(Store):
    """A store served over TCP by one process, the master, to all processes of a job.

    The master listens only at the address of `host_name`. With "0.0.0.0" it listens at
    every IPv4 address of the machine, with "::" at every address. If the machine of the
    master resolves the name to 127.0.1.1, as Debian does for a machine's own name, the
    master listens at all addresses of the machine, because other hosts mean one of
    these by the name. Clients keep trying until `timeout`, so they may start before the
    master does. If the environment variable ALLHANDS_SECRET is set, both sides prove
    that they know it before any data passes.

    Threads may share a store: a call that waits holds up no other call. A child of
    `fork` may continue to use its parent's store. The child gets its own connections,
    and the parent keeps the server. Keys have up to 64 KiB, values up to 1 GiB.

    Args:
        host_name: name or literal address of the master.
        port: where the master listens; with 0 it picks a port, see `port`.
        world_size: how many stores are made in all, the master's included; None or a
            negative number if this is unknown.
        is_master: serve the store from this process.
        timeout: the limit for finding the master, and for later operations.
        wait_for_workers: the master waits until `world_size` stores were made.
        multi_tenant: masters in one process with the same host and port share a server.
        master_listen_fd: a bound TCP socket for the master to listen on. The store
            takes it over (`socket.detach()`).
        use_libuv: has no effect; there is only one server, which has every operation.

    Raises:
        DistNetworkError: the master cannot listen (the message names the process that
            uses the port) or cannot reach itself (after 5 s); no server was found, or
            it has another secret.
        DistStoreError: not all workers came within `timeout`.
        ValueError: `port` or `world_size` is out of range.

    Example:
        ```python
        store = dist.TCPStore("127.0.0.1", 0, is_master=True)
        worker = dist.TCPStore("127.0.0.1", store.port)
        worker.set("answer", "42")
        store.get("answer")  # b"42"
        ```
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        if not isinstance(host_name, str):
            raise TypeError(f"host_name must be a str, got {host_name!r}")
        host_name.encode()  # lone surrogates cannot be sent
        port = as_port(port)
        size = None if world_size is None else operator.index(world_size)
        if size == 0:
            raise ValueError("TCPStore world size cannot be 0; None means any number")
        self._timeout = as_timedelta(timeout)
        # URLs write "::1" as "[::1]".
        self._host = host_name.removeprefix("[").removesuffix("]")
        self._use_libuv = use_libuv
        self._secret = settings.secret.get()
        self._server: StoreServer | None = None
        self._last_will: StoreLastWill | None = None
        if is_master:
            self._server = self._serve(port, multi_tenant, master_listen_fd)
            port = self._server.port
        self._port = port
        self._client = self._connect() if not is_master else self._connect_to_own()
        count = 0 if size is None or size < 0 else size
        if count or wait_for_workers:
            self._join(wait_for_workers)
        if count and is_master and wait_for_workers:
            self._client.await_workers(count, self._limit)

    def _serve(self, port: int, multi_tenant: bool, fd: int | None) -> StoreServer:
        if not multi_tenant:
            return self._make_server(port, fd)
        with _shared_lock:
            server = _shared.get((self._host, port, self._secret))
            if server is None:
                server = self._make_server(port, fd)
                _shared[self._host, server.port, self._secret] = server
            return server

    def _make_server(self, port: int, fd: int | None) -> StoreServer:
        listen_fd = -1 if fd is None else fd
        return StoreServer(self._host, port, self._secret, self._limit, listen_fd)

    def _connect(self, limit: float | None = None) -> StoreClient:
        limit = self._limit if limit is None else limit
        return StoreClient(self._host, self._port, self._secret, limit)

    def _connect_to_own(self) -> StoreClient:
        try:
            return self._reach_own()
        except DistNetworkError as error:
            raise DistNetworkError(
                f"this process serves a store at {self._host}:{self._port}, but cannot "
                f"reach it there: {error}. Is the network interface of that address up "
                "(`ip address`)?"
            ) from error

    def _reach_own(self) -> StoreClient:
        try:
            return self._connect(min(self._limit, _OWN_SERVER_LIMIT_S))
        except DistNetworkError:
            if not self._takes_connections():
                raise
        return self._connect()  # the server's thread had no CPU, as in a stop

    def _takes_connections(self) -> bool:
        """Whether the system connects to the server, which need not answer yet."""
        address = self._host, self._port
        with suppress(OSError), socket.create_connection(address, _PROBE_LIMIT_S):
            return True
        return False

    def _join(self, is_key: bool) -> None:
        """Join the server; if the server is just ending, join its successor."""
        deadline = time.monotonic() + self._limit
        while True:
            try:
                self._client.join(is_key, self._limit)
                return
            except DistNetworkError:
                left = deadline - time.monotonic()
                if self._server is not None or left <= 0:
                    raise
            self._client = self._connect(left)

    @property
    def host(self) -> str:
        """The host name that the store was made with."""
        return self._host

    @property
    def port(self) -> int:
        """The port at which the server listens."""
        return self._port

    @property
    def libuvBackend(self) -> bool:
        """The argument `use_libuv`."""
        return self._use_libuv

    @property
    def _limit(self) -> float:
        return self._timeout.total_seconds()

    def set(self, key: str, value: str | bytes) -> None:
        """Set `key` to `value`; the server has it on return. See `Store.set`."""
        self._client.set(as_key(key), as_bytes(value), self._limit)

    def get(self, key: str) -> bytes:
        """Return the value of `key`; wait until there is one. See `Store.get`."""
        return self._client.get(as_key(key), self._limit)

    def add(self, key: str, amount: int) -> int:
        """Add `amount` to the counter `key`; return the sum. See `Store.add`."""
        return self._client.add(as_key(key), as_int64(amount), self._limit)

    def append(self, key: str, value: str | bytes) -> None:
        """Append `value` to the value of `key`. See `Store.append`."""
        self._client.append(as_key(key), as_bytes(value), self._limit)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all of `keys` exist now. See `Store.check`."""
        return self._client.check(as_keys(keys), self._limit)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all of `keys` exist. See `Store.wait`."""
        self._client.wait(as_keys(keys), self._limit_of(timeout))

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Set `key` if its value is `expected_value`. See `Store.compare_set`."""
        expected, desired = as_bytes(expected_value), as_bytes(desired_value)
        return self._client.compare_set(as_key(key), expected, desired, self._limit)

    def delete_key(self, key: str) -> bool:
        """Delete `key`; return whether it existed. See `Store.delete_key`."""
        return self._client.delete_key(as_key(key), self._limit)

    def num_keys(self) -> int:
        """Return the number of keys, and 1 for the store's own key.

        The store has a key of its own, which counts the workers, once a store was made
        with `wait_for_workers`. Only this method shows it.
        """
        return self._client.num_keys(self._limit)

    def list_keys(self) -> list[str]:
        """Return all keys, in no particular order. See `Store.list_keys`."""
        return self._client.list_keys(self._limit)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of `keys`, in one message. See `Store.multi_get`."""
        return self._client.multi_get(as_keys(keys), self._limit)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set `keys` to `values` in one step. See `Store.multi_set`."""
        items = as_items(keys, values)
        names, contents = [key for key, _ in items], [value for _, value in items]
        self._client.multi_set(names, contents, self._limit)

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Append `value` to the queue `key`. See `Store.queue_push`."""
        self._client.queue_push(as_key(key), as_bytes(value), self._limit)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Remove and return the queue's oldest value. See `Store.queue_pop`.

        Waiting callers are served in the order in which they came.
        """
        return self._client.queue_pop(as_key(key), block, self._limit)

    def queue_len(self, key: str) -> int:
        """Return the number of values in the queue `key`. See `Store.queue_len`."""
        return self._client.queue_len(as_key(key), self._limit)

    def barrier(
        self, key: str, world_size: int, timeout: timedelta | None = None
    ) -> None:
        """Wait until `world_size` callers have called it with this `key`.

        The barrier uses no keys, and callers may use the same key again at once. A
        caller that gives up no longer counts.

        Raises:
            DistStoreError: the limit passed first.
            ValueError: `world_size` differs from that of the callers that wait already.
        """
        size = as_world_size(world_size)
        self._client.barrier(as_key(key), size, self._limit_of(timeout))

    def clone(self) -> TCPStore:
        """Return another object on the same data, with its own connection and timeout.

        The clone of a master keeps the server alive.
        """
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._last_will = None
        other._client = other._connect()
        return other

    def has_extended_api(self) -> bool:
        """True."""
        return True

    def _get_within(self, key: str, limit: timedelta) -> bytes | None:
        return self._client.get_unwatched(as_key(key), to_seconds(limit))

    def _survey(self, prefix: str, count: int) -> bytes:
        return self._client.survey(as_key(prefix), count, self._limit)

    def _route(self) -> Route:
        return Route(self._host, self._client.own_address)

    def _leave_last_will(self, key: str, value: bytes) -> None:
        self._last_will = None  # withdraws the previous one first
        limit = min(self._limit, _LAST_WILL_LIMIT_S)
        self._last_will = self._client.leave_will(key, value, limit)

    def _withdraw_last_will(self) -> None:
        self._last_will = None

    def _limit_of(self, timeout: timedelta | None) -> float:
        return self._limit if timeout is None else to_seconds(timeout)

    def __repr__(self) -> str:
        role = ", is_master=True" if self._server is not None else ""
        return f"TCPStore({self._host!r}, {self._port}{role})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled: it is a connection. Make another one there: "
            f"TCPStore({self._host!r}, {self._port})"
        )


# The servers that multi_tenant shares, by host, port and secret, while a store holds
# them.
_shared: WeakValueDictionary[tuple[str, int, str], StoreServer] = WeakValueDictionary()
_shared_lock = threading.Lock()
