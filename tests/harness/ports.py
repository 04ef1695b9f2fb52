"""Ports that a test names before somebody listens there."""

import contextlib
import socket


@contextlib.contextmanager
def reserved_port():
    """A port of 127.0.0.1 that nobody gets by chance; who asks for it may listen.

    A socket has it meanwhile, but does not listen: who connects is refused.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
