"""start_debug_server, stop_debug_server: a page in a browser that shows the job."""

from __future__ import annotations

import atexit
import errno
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from allhands import settings
from allhands.debug.verdict import ranks_text
from allhands.errors import DistNetworkError
from allhands.groups.visible_group import VisibleGroup
from allhands.groups.world import World, current, default_group
from allhands.groups.world_listeners import (
    when_a_group_has_ended,
    when_the_ranks_have_met,
)
from allhands.rendezvous.identity import Identity, process_identity
from allhands.rendezvous.log import LogLevel, say
from allhands.rendezvous.roster import Roster

if TYPE_CHECKING:
    from allhands.debug.page.listener import Listener

__all__ = ["serve_if_asked", "start_debug_server", "stop_debug_server"]

_LOOPBACK = "127.0.0.1"
_EVERYWHERE = ("", "0.0.0.0", "::")
_ANSWER_S = 2.0
_LONGEST_S = 100.0  # a page that waits longer would be cut off
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,256}")  # RFC 6750; also valid in an address


class _Page(NamedTuple):
    """A served page and its address."""

    listener: Listener
    url: str
    """Without the token."""
    token: str
    mark: str
    """The mark of the world that it shows; empty if its ranks are unknown."""


class _Server:
    """The page of this process; any thread may use it.

    A signal's handler may end the world, and so the page, while this thread starts it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._page: _Page | None = None
        self._num_stops = 0

    def start(self, serve: Callable[[], _Page]) -> _Page:
        """Return the page; `serve` makes it if there is none.

        Raises:
            ValueError: a signal's handler has stopped the page meanwhile.
        """
        with self._lock:
            if self._page is None:
                num_stops = self._num_stops
                page = serve()
                if self._num_stops != num_stops:
                    page.listener.close()
                    raise ValueError(
                        "start_debug_server: the page, or the world, was ended "
                        "meanwhile by a signal's handler"
                    )
                self._page = page
                atexit.register(self.stop)
            return self._page

    def stop_for(self, roster: Roster, known: Roster | None) -> None:
        """Stop the page of another world, now that the ranks of `roster` have met.

        That may be a world that could not be made after its ranks had met.

        Args:
            roster: the roster of the world that is being made.
            known: the roster of an existing world, if any.
        """
        page = self._page
        kept = {each.mark for each in (roster, known) if each is not None}
        if page is not None and page.mark not in kept:
            self.stop()

    def stop(self) -> None:
        """Stop the page, if there is one."""
        with self._lock:
            self._num_stops += 1
            page, self._page = self._page, None
        if page is not None:
            atexit.unregister(self.stop)
            page.listener.close()

    def forget(self) -> None:
        """Forget the page in a forked child, which serves nothing."""
        page = self._page
        atexit.unregister(self.stop)
        self.__init__()  # type: ignore[misc]  # the lock may have been taken, too
        if page is not None:
            page.listener.forget()


_server = _Server()


def start_debug_server(
    port: int = 25999,
    worker_port: int = 0,
    start_method: str | None = None,
    dump_dir: str | None = None,
    dump_interval: float = 60.0,
    enabled_dumps: Sequence[str] | None = None,
    handlers: Sequence[Any] | None = None,
    fetch_timeout: float = _ANSWER_S,
    *,
    host: str = _LOOPBACK,
    token: str | None = None,
) -> str | None:
    """Serve a page that shows this job in a browser, from the first rank of each host.

    Any number of ranks may call it at any time while there is a world; it waits for no
    rank. On each host, a thread of the rank with the lowest number then serves the
    page. On other ranks the call does nothing, and so it does if the page is already
    served. [The debug page](#the-debug-page) describes what it shows, and which ranks
    it disturbs. It ends with `stop_debug_server`, with the world, and with the process.
    A forked child does not serve it.

    Args:
        port: the port; 0 means any free port.
        worker_port: a parameter of torch. Not used: here ranks do not listen.
        start_method: a parameter of torch. Not used: here no other process is started.
        dump_dir: a parameter of torch, as are `dump_interval` and `enabled_dumps`. It
            must be None: `ALLHANDS_DUMPS` and `ALLHANDS_TRACE` write records.
        dump_interval: see `dump_dir`.
        enabled_dumps: see `dump_dir`.
        handlers: a parameter of torch. It must be None.
        fetch_timeout: seconds that the other ranks have to answer each time that the
            page asks them, at most 100; more if many share a CPU.
        host: the address of the page. Beyond loopback all data is unencrypted, also the
            token.
        token: the secret that a client needs, with 16 characters or more. None means
            that of `ALLHANDS_DEBUG_TOKEN`, or else a new one.

    Returns:
        The page's address with its token. If `host` means all addresses, it has the
        name of the machine. None on a rank that serves no page.

    Raises:
        ValueError: there is no world yet, or an argument is not valid.
        DistNetworkError: the page cannot be served there, for example because the port
            is in use.

    Example:
        ```python
        url = dist.debug.start_debug_server(port=0)
        if url:
            print(url, file=sys.stderr)
        ```
    """
    for name, value in (
        ("dump_dir", dump_dir),
        ("enabled_dumps", enabled_dumps),
        ("handlers", handlers),
    ):
        if value is not None:
            raise ValueError(
                f"start_debug_server: {name} must be None, got {value!r:.80}; the page "
                f"has the record and the trace of the job, and ALLHANDS_DUMPS and "
                f"ALLHANDS_TRACE write them to a folder"
            )
    if not 0 <= port < 1 << 16:
        raise ValueError(f"start_debug_server: port must be in [0, 65536), got {port}")
    if not 0 < fetch_timeout <= _LONGEST_S:
        raise ValueError(
            f"start_debug_server: fetch_timeout must be in (0, {_LONGEST_S:g}] "
            f"seconds, got {fetch_timeout!r}"
        )
    token = _checked(token or settings.debug_token.get() or secrets.token_urlsafe(32))
    world = current()
    rank = (world.whole or default_group()).rank()
    roster = world.known_roster
    if rank != _first_here(roster):
        return None
    place = host, port
    page = _server.start(
        lambda: _serve(world, roster, rank, place, token, fetch_timeout)
    )
    return f"{page.url}#{page.token}"


def stop_debug_server() -> None:
    """Stop serving the debug page; an open page keeps what it shows.

    This affects only this rank. Any thread may call it. Without a page it does nothing.

    Example:
        ```python
        dist.debug.stop_debug_server()
        ```
    """
    _server.stop()


def _checked(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ValueError(
            f"start_debug_server: token must be 16 to 256 letters, digits or any of "
            f"-._~+/=, got {len(token)} characters"
        )
    return token


def _first_here(roster: Roster | None) -> int:
    """Return the rank that serves this host's page; 0 if the others are unknown."""
    if roster is None:
        return 0
    return _ranks_here(roster)[0]


def _ranks_here(roster: Roster) -> list[int]:
    host = process_identity().host
    return [rank for rank, each in enumerate(roster.identities) if each.host == host]


def _serve(
    world: World,
    roster: Roster | None,
    rank: int,
    place: tuple[str, int],
    token: str,
    limit: float,
) -> _Page:
    # It takes tens of milliseconds, which other programs need not spend.
    from allhands.debug.page.answers import Answers
    from allhands.debug.page.job_view import JobView
    from allhands.debug.page.listener import Connection, Listener
    from allhands.debug.page.request import PageRequest, Site

    if roster is None:
        ranks: dict[int, Identity] = {rank: process_identity()}
        size, mark = (world.whole or default_group()).size(), ""
    else:
        ranks = dict(enumerate(roster.identities))
        size, mark = len(ranks), roster.mark
    answers = Answers(JobView(world, rank, size, ranks, mark, limit))
    host, port = place

    def answer(connection: Connection) -> None:
        PageRequest(connection, Site(listener, host, token, answers))

    try:
        listener = Listener(host, port, answer, answers.tidy)
    except OSError as error:
        raise _unserved(host, port, error) from error
    try:
        listener.start()
    except BaseException as error:
        listener.close()
        if isinstance(error, RuntimeError):  # no thread is left
            raise _unserved(host, port, OSError(errno.EAGAIN, str(error))) from error
        raise
    shown = f"[{host}]" if ":" in host else host
    if host in _EVERYWHERE:  # a browser cannot open this address
        shown = socket.gethostname()
    return _Page(listener, f"http://{shown}:{listener.port}/", token, mark)


def _unserved(host: str, port: int, error: OSError) -> DistNetworkError:
    remedy = ""
    if error.errno == errno.EADDRINUSE:
        remedy = "; another program, or another job's page, has the port: take another "
        remedy += "one, or 0 for any that is free"
    return DistNetworkError(
        f"the debug page cannot be served at {host}, port {port}: "
        f"{error.strerror or error}{remedy}"
    )


def _serve_as_set(roster: Roster, rank: int) -> None:
    """Serve the page if the setting asks for it; errors do not stop the program."""
    _server.stop_for(roster, current().known_roster)
    try:
        place = settings.debug_server.get()
        if place is None or rank != _first_here(roster):
            return
        given = settings.debug_token.get()
        token = _checked(given or secrets.token_urlsafe(32))
        page = _server.start(
            lambda: _serve(current(), roster, rank, place, token, _ANSWER_S)
        )
    except (ValueError, DistNetworkError) as error:
        why = f"{settings.debug_server.name}: {error}"
        text = f"rank {rank} serves no debug page: {why}"
        say(LogLevel.ERROR, "page", rank, text)
        return
    whose = ranks_text(_ranks_here(roster))
    shown = page.url if given else f"{page.url}#{page.token}"
    known = f" (with # and what {settings.debug_token.name} is)" if given else ""
    say(LogLevel.ERROR, "page", rank, f"debug page of {whose}: {shown}{known}")


def _end_with(group: VisibleGroup) -> None:
    if group.is_world:
        _server.stop()


def serve_if_asked() -> None:
    """Serve pages of this process's worlds if the setting asks for it."""
    when_the_ranks_have_met(_serve_as_set)
    when_a_group_has_ended(_end_with)
    os.register_at_fork(after_in_child=_server.forget)
