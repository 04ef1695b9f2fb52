"""The debug page as its clients meet it: requests over a socket."""

import json
import socket
from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from harness.ranks import GROUP_LIMIT

DATA = ("/live", "/job", "/record", "/trace", "/metrics")


class Reply(NamedTuple):
    status: int
    headers: dict
    body: bytes

    def json(self):
        assert self.status == 200, self.body
        return json.loads(self.body)


class Page:
    """By what `start_debug_server` returned."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.url, self.token = url, parts.fragment
        self.address = parts.hostname, parts.port

    def ask(self, path, *, method="GET", body=None, token=None, **headers):
        """With the token, unless another, or none by "", is given."""
        token = self.token if token is None else token
        if token:
            headers.setdefault("Authorization", f"Bearer {token}")
        connection = HTTPConnection(*self.address, timeout=GROUP_LIMIT)
        try:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return Reply(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()

    def connect(self):
        return socket.create_connection(self.address, timeout=GROUP_LIMIT)

    def say(self, *parts):
        """What comes back to these bytes, until the other end closes."""
        with self.connect() as client:
            found = b""
            try:
                for part in parts:
                    client.sendall(part)
                client.shutdown(socket.SHUT_WR)
                while read := client.recv(1 << 16):
                    found += read
            except (BrokenPipeError, ConnectionResetError):
                pass  # it had seen enough
            return found
