"""Ports that a test names before somebody listens there, and where IPv6 is."""

import contextlib
import socket

import pytest


def _has_ipv6():
    """Whether this machine has ::1; a container often knows IPv6 and has no address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="has no IPv6")


@contextlib.contextmanager
def reserved_port():
    """A port of 127.0.0.1 that nobody gets by chance; who asks for it may listen.

    A socket has it meanwhile, but does not listen: who connects is refused.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
