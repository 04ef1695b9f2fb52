"""A bare TCP connection between two ranks, which polls and never sleeps."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket

from allhands.store import FileStore

__all__ = ["Connection", "connect_all"]

_LIMIT_S = 60.0  # for ranks to connect
_LOOKS = 100_000  # in vain, before a check whether the other rank is still alive
_RANK_BYTES = 4

# These are the C library's functions, as Python's methods raise an exception when
# nothing has arrived yet, which takes longer than the look itself. PyDLL keeps the GIL:
# no other thread here needs it meanwhile.
_LIBC = ctypes.PyDLL(None, use_errno=True)
_send, _recv = _LIBC.send, _LIBC.recv
for _function in _send, _recv:
    _function.restype = ctypes.c_ssize_t
    _function.argtypes = (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
    )
_NOW = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Connection:
    """Moves memory, given by address and number of bytes, to and from another rank.

    Every call raises OSError if that rank has ended, or cannot be reached any more.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._fd = connected.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, 0)

    def send(self, address: int, num_bytes: int) -> None:
        """Hand all bytes over to the kernel."""
        self.exchange(address, num_bytes, 0, 0)

    def recv(self, address: int, num_bytes: int) -> None:
        """Receive until all bytes are filled."""
        self.exchange(0, 0, address, num_bytes)

    def exchange(self, source: int, to_send: int, target: int, to_recv: int) -> None:
        """Send `to_send` bytes, and at the same time receive `to_recv` bytes."""
        fd, looks = self._fd, 0
        while to_send or to_recv:
            if to_send:
                done = _send(fd, source, to_send, _NOW)
                if done > 0:
                    source += done
                    to_send -= done
            if to_recv:
                done = _recv(fd, target, to_recv, _NOW)
                if done > 0:
                    target += done
                    to_recv -= done
                elif done == 0:
                    self._check(is_ended=True)
            looks += 1
            if looks % _LOOKS == 0:
                self._check()

    def _check(self, is_ended: bool = False) -> None:
        # With no events asked for, a poll reports only an error or a closed connection.
        if is_ended or self._poll.poll(0):
            raise ConnectionResetError("the rank at the other end has ended")
        if (error := ctypes.get_errno()) not in (0, errno.EAGAIN):
            raise OSError(error, os.strerror(error))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def connect_all(
    store: FileStore, rank: int, size: int, address: str
) -> dict[int, Connection]:
    """Return a connection to each other rank; this rank listens at `address`.

    A rank connects to the ranks below it, and those above connect to it.

    Raises:
        OSError: the address is not this host's, or a rank did not connect in time.
    """
    connections = {}
    with socket.create_server((address, 0), backlog=size) as listener:
        listener.settimeout(_LIMIT_S)
        store.set(f"place{rank}", f"{address}:{listener.getsockname()[1]}")
        for other in range(rank):
            host, _, port = store.get(f"place{other}").decode().partition(":")
            connected = socket.create_connection((host, int(port)), _LIMIT_S)
            connected.sendall(rank.to_bytes(_RANK_BYTES, "little"))
            connections[other] = Connection(connected)
        for _ in range(rank + 1, size):
            accepted, _ = listener.accept()
            accepted.settimeout(_LIMIT_S)
            hello = accepted.recv(_RANK_BYTES, socket.MSG_WAITALL)
            connections[int.from_bytes(hello, "little")] = Connection(accepted)
    return connections
