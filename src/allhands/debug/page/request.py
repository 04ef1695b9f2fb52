"""PageRequest: one HTTP request to the debug page.

Requests only read: GET and HEAD. The page itself, its style and its script are the same
for everybody. All data of the job needs the token in an Authorization header, which no
other page can make a browser send. A request under another name than the machine's own
(DNS rebinding) is refused. Errors repeat nothing of the request, and nothing is logged.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import urlsplit

from allhands.debug.page.answers import Answer, Answers
from allhands.debug.page.listener import Connection, Listener

__all__ = ["PageRequest", "Site"]

_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}
_PROBLEMS = {
    HTTPStatus.UNAUTHORIZED: "this needs `Authorization: Bearer TOKEN`; the token is "
    "behind the # of the address that start_debug_server returned",
    HTTPStatus.METHOD_NOT_ALLOWED: "this page can only be read: GET or HEAD",
    HTTPStatus.NOT_FOUND: "there is no such page",
    HTTPStatus.MISDIRECTED_REQUEST: "the Host header must have this machine's name or "
    "an address",
}


@cache
def _whole_name() -> str:
    """Return this machine's name with its domain, which may need a look-up; cached."""
    return socket.getfqdn().lower()


class Site(NamedTuple):
    """What requests are sent to."""

    listener: Listener
    host: str
    """The host at which it was asked to listen."""
    token: str
    answers: Answers


class PageRequest(BaseHTTPRequestHandler):
    """See the module; it serves one connection, which then ends."""

    # For a line without a version. With the base class's 0.9, errors would have no
    # head.
    default_request_version = "HTTP/1.0"

    def __init__(self, connection: Connection, site: Site) -> None:
        self._connection, self._site = connection, site
        super().__init__(connection.socket, None, None)  # type: ignore[arg-type]

    def version_string(self) -> str:
        """Return the text of the Server header."""
        return "allhands"

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing: requests are private."""

    def parse_request(self) -> bool:
        """Return whether the request can be answered; else an error has been sent."""
        if not super().parse_request():
            return False
        self._site.listener.has_read(self._connection)
        if self.command not in ("GET", "HEAD"):
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)
        elif self.request_version == "HTTP/0.9" or len(self.requestline.split()) < 3:
            self.request_version = self.default_request_version
            self.send_error(HTTPStatus.BAD_REQUEST)
        elif not self._is_host_ours():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        else:
            return True
        return False

    def _is_host_ours(self) -> bool:
        named = self.headers.get_all("Host", [])
        try:
            [name] = (urlsplit(f"//{each}").hostname or "" for each in named)
        except ValueError:  # none, several, or not a name
            return False
        if name in ("localhost", socket.gethostname().lower(), self._site.host.lower()):
            return True
        try:
            ipaddress.ip_address(name)  # no name server can claim an address
        except ValueError:
            return name == _whole_name()
        return True

    def do_GET(self) -> None:
        """Send the content at this path."""
        path = self.path.partition("?")[0]
        answers = self._site.answers
        try:
            answer = answers.open_to_all(path)
            if answer is None and not self._is_authorized():
                self.send_error(HTTPStatus.UNAUTHORIZED)
                return
            answer = answer or answers.to_the_trusted(path)
        except Exception as error:  # goes to the client; the rank continues
            self._send(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                Answer.of_text(f"{type(error).__name__}: {error}"),
            )
            return
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._send(HTTPStatus.OK, answer)

    do_HEAD = do_GET

    def _is_authorized(self) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        is_it = secrets.compare_digest(token.encode(), self._site.token.encode())
        return is_it and scheme.lower() == "bearer"

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Send an error, without the text that the base class would repeat."""
        status = HTTPStatus(code)
        self._send(status, Answer.of_text(_PROBLEMS.get(status, status.phrase)))

    def _send(self, status: HTTPStatus, answer: Answer) -> None:
        more: Mapping[str, str] = {}
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            more = {"Allow": "GET, HEAD"}
        elif status == HTTPStatus.UNAUTHORIZED:
            more = {"WWW-Authenticate": "Bearer"}
        self.close_connection = True
        self.send_response(status)
        told = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
        if answer.file:
            told["Content-Disposition"] = f'attachment; filename="{answer.file}"'
        for name, value in {**told, **more, **_SECURITY}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
