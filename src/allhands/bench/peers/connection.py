"""A bare TCP connection between two ranks, that spins: it never sleeps."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket

from allhands.store import FileStore

__all__ = ["Connection", "connect_all"]

_LIMIT_S = 60.0  # for ranks to meet
_LOOKS = 100_000  # in vain, until it is found out whether the other one is still there
_RANK_BYTES = 4

# The C library's own: nothing is raised where there is nothing yet, which takes longer
# than the look. PyDLL: no other thread here wants the interpreter meanwhile.
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
        """Hand all of it over to the kernel."""
        self.exchange(address, num_bytes, 0, 0)

    def recv(self, address: int, num_bytes: int) -> None:
        """Fill all of it."""
        self.exchange(0, 0, address, num_bytes)

    def exchange(self, source: int, to_send: int, target: int, to_recv: int) -> None:
        """Send `to_send` bytes, and at the same time receive `to_recv`."""
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
        # What a poll tells without being asked is an error, or the end of both ways.
        if is_ended or self._poll.poll(0):
            raise ConnectionResetError("the rank at the other end has ended")
        if (error := ctypes.get_errno()) not in (0, errno.EAGAIN):
            raise OSError(error, os.strerror(error))

    def close(self) -> None:
        """Let it go."""
        self._socket.close()


def connect_all(
    store: FileStore, rank: int, size: int, address: str
) -> dict[int, Connection]:
    """A connection to each other rank; this one listens at `address` for those above.

    Raises:
        OSError: that address is not this host's, or a rank did not come in time.
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
