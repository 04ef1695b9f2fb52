"""Listener: accepts connections; a thread of its own answers each of them.

No client is trusted. The number of connections is limited, and each has a limited time
for its request. If all are in use, the oldest connection that has its answer is cut
off, or else the oldest without a request. While there are no connections, the listener
sleeps.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

__all__ = ["Connection", "Listener"]

_MOST = 16  # connections
_READ_S = 5.0  # for a request
_ANSWER_S = 120.0  # for its answer, which may need other ranks and a slow network
_ROOM_S = 1.0  # for a thread to notice that its connection has ended
_BACKLOG = 32
_PAUSE = 0.1  # seconds to wait for descriptors or threads
_END_S = 3.0  # for answers under way when the listener closes
# until the client has read its answer and closes; others may need the connection
_LINGER_S = 0.5
_TIDY_S = 1.0  # between looks for old results, while there are some
_DRAINED = 1 << 16  # bytes at a time
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BUSY = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\ntoo many connections\n"
)


@dataclass(eq=False)
class Connection:
    """A connection of a client. Its thread changes it, under the listener's lock."""

    socket: socket.socket
    deadline: float
    is_reading: bool = True
    """Whether its request has not come yet, and may come."""
    is_answered: bool = False
    """Whether it has its answer and has not closed yet."""

    def cut_off(self) -> None:
        """End the connection, which its thread then notices."""
        self.is_reading = self.is_answered = False
        self.deadline = math.inf
        with suppress(OSError):  # it has ended by itself
            self.socket.shutdown(socket.SHUT_RDWR)


class Listener:
    """See the module; `close` and `forget` are for one thread."""

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[Connection], None],
        tidy: Callable[[], bool] = lambda: False,
    ) -> None:
        """Listen from now on; answers begin with `start`.

        Args:
            host: an address or name of this machine.
            port: the port; 0 means any free port.
            answer: called in a thread of each connection; it need not close it.
            tidy: called after it; drops old results, and returns whether more will
                become old. It must not wait.

        Raises:
            OSError: it is impossible to listen there.
        """
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self._answer, self._tidy = answer, tidy
        self._socket = socket.socket(family, kind, protocol)
        try:
            # Ended connections must not keep the port from the next job.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
            self._socket.listen(_BACKLOG)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        self._lock = threading.Condition()  # notified when a connection has been closed
        self._open = dict[Connection, threading.Thread]()  # the oldest first
        self._is_closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="allhands debug page", daemon=True
        )

    def start(self) -> None:
        """Begin to answer.

        Raises:
            RuntimeError: no thread is available.
        """
        self._thread.start()

    def close(self) -> None:
        """Stop answering; cut off connections under way.

        No thread is left, except one that has taken seconds for its answer. A thread
        that is in the core when the interpreter ends would end the process by SIGABRT.
        """
        self._is_closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # this wakes the thread
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        with self._lock:
            threads = list(self._open.values())
            for each in self._open:
                each.cut_off()
        end = time.monotonic() + _END_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def forget(self) -> None:
        """Release the descriptors in a forked child, which has none of the threads."""
        for each in (self._socket, *(one.socket for one in list(self._open))):
            with suppress(OSError):  # it was closed
                os.close(each.detach())

    def has_read(self, connection: Connection) -> None:
        """Note that the request has come and its answer begins."""
        with self._lock:
            if connection.is_reading:
                connection.is_reading = False
                connection.deadline = time.monotonic() + _ANSWER_S

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not self._is_closed.is_set():
            poll.poll(self._patience())
            self._cut_off_the_late()
            try:
                self._take()
            except BlockingIOError:
                continue  # a deadline passed, or the client has gone again
            except OSError as error:
                if error.errno in _SCARCE:
                    self._is_closed.wait(_PAUSE)

    def _patience(self) -> float | None:
        """Return the milliseconds until something is due; None if nothing is."""
        with self._lock:
            first = min((each.deadline for each in self._open), default=math.inf)
        # A connection that is open may leave a result behind, and its end wakes nobody.
        if self._tidy() or first < math.inf:
            first = min(first, time.monotonic() + _TIDY_S)
        if first == math.inf:
            return None
        return max(0.0, first - time.monotonic()) * 1000 + 1

    def _cut_off_the_late(self) -> None:
        now = time.monotonic()
        with self._lock:
            for each in self._open:
                if each.deadline <= now:
                    each.cut_off()

    def _take(self) -> None:
        accepted, _ = self._socket.accept()
        connection = Connection(accepted, time.monotonic() + _READ_S)
        accepted.settimeout(_ANSWER_S)
        if not self._make_room():
            _refuse(accepted)
            return
        thread = threading.Thread(
            target=self._serve,
            args=(connection,),
            name="allhands debug page: answer",
            daemon=True,
        )
        with self._lock:
            self._open[connection] = thread
        try:
            thread.start()
        except RuntimeError:  # no thread is left
            with self._lock:
                del self._open[connection]
            _refuse(accepted)

    def _make_room(self) -> bool:
        with self._lock:
            if len(self._open) < _MOST:
                return True
            answered = (each for each in self._open if each.is_answered)
            silent = (each for each in self._open if each.is_reading)
            least = next(answered, None) or next(silent, None)
            if least is None:
                return False
            least.cut_off()
            return self._lock.wait_for(lambda: len(self._open) < _MOST, _ROOM_S)

    def _serve(self, connection: Connection) -> None:
        try:
            with suppress(OSError):  # the client has gone or was cut off
                self._answer(connection)
                with self._lock:
                    connection.is_reading, connection.is_answered = False, True
                _end(connection.socket, _LINGER_S)
        finally:
            with self._lock:
                del self._open[connection]
                connection.socket.close()
                self._lock.notify_all()


def _refuse(accepted: socket.socket) -> None:
    with accepted, suppress(OSError):
        accepted.setblocking(False)
        accepted.send(_BUSY)
        _end(accepted, 0.0)


def _end(connection: socket.socket, linger: float) -> None:
    """Let sent data arrive: closing with unread data would drop it."""
    connection.shutdown(socket.SHUT_WR)
    rest, end = linger, time.monotonic() + linger
    while rest >= 0:
        connection.settimeout(rest)
        if not connection.recv(_DRAINED):
            return
        rest = end - time.monotonic()
