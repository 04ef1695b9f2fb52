"""The debug page as a program starts and ends it."""

import socket
import threading
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

import allhands as dist
from allhands import settings
from allhands.debug import server
from allhands.groups.world import World, current
from allhands.rendezvous.identity import process_identity
from allhands.rendezvous.roster import Roster
from harness.debug_page import Page
from harness.ranks import run_ranks


def alone(body):
    """In a world of one rank."""
    [result] = run_ranks(1, lambda rank: body())
    return result


def serving():
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("allhands debug page")]


def test_it_is_served_once_and_ends():
    def body():
        url = dist.debug.start_debug_server(port=0)
        assert dist.debug.start_debug_server(port=1) == url
        page = Page(url)
        assert page.url.startswith("http://127.0.0.1:")
        assert len(page.token) > 40
        assert page.ask("/job").status == 200
        silent = page.connect()
        assert page.ask("/").status == 200  # who came before has been let in
        dist.debug.stop_debug_server()
        dist.debug.stop_debug_server()
        assert serving() == []
        with silent:
            assert silent.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            page.connect()
        again = Page(dist.debug.start_debug_server(port=0))
        # Connections that have ended do not keep the port from the next job.
        reuse = socket.SOL_SOCKET, socket.SO_REUSEADDR
        assert server._server._page.listener._socket.getsockopt(*reuse)
        assert again.token != page.token
        assert again.ask("/job", token=page.token).status == 401
        assert again.ask("/job").status == 200
        assert "allhands debug page" in serving()
        dist.debug.stop_debug_server()
        assert serving() == []

    alone(body)


def test_a_handler_may_end_it_while_it_begins():
    """The handler of a signal, which destroys the world, runs in the same thread."""
    its, closed = server._Server(), []
    listener = SimpleNamespace(close=lambda: closed.append(True))

    def serve():
        its.stop()
        return server._Page(listener, "http://127.0.0.1:1/", "token", "mark")

    def start():
        with pytest.raises(ValueError, match="meanwhile by a signal's handler"):
            its.start(serve)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "locked out by itself"
    assert closed == [True]
    its.stop()
    assert closed == [True]


def served(rank):
    """What its page says on rank 0; on another what is said of the page."""
    url = dist.debug.start_debug_server(port=0)
    dist.barrier()
    if rank != 0:
        return url
    facts = Page(url).ask("/job").json()
    dist.debug.stop_debug_server()
    return facts


def test_the_first_rank_of_a_host_serves():
    facts, *others = run_ranks(3, served)
    assert others == [None, None]
    assert facts["size"] == 3
    [silent] = facts["silent"]
    assert silent["ranks"] == "ranks 1, 2"


def test_where_ranks_are_not_known_rank_0_shows_itself():
    facts, other = run_ranks(2, served, backend="fake")
    assert other is None
    [silent] = facts["silent"]
    assert silent["ranks"] == "rank 1"
    assert silent["why"] == "is not known to the rank that serves this"


def test_no_page_outlives_a_world_that_could_not_be_made(monkeypatch):
    """The ranks had met when its making failed; now those of another one meet."""

    def roster(token, identity):
        return Roster([identity], token)

    def page():
        return server._server._page

    def meet(roster):
        server._serve_as_set(roster, 0)

    def body():
        me = process_identity()
        world = current()
        monkeypatch.setenv("ALLHANDS_DEBUG_SERVER", "0")
        meet(roster(b"first", me))
        failed = page()
        meet(roster(b"first", me))
        assert page() is failed
        meet(roster(b"second", me))
        assert page().token != failed.token
        kept = page()
        # Groups of torch's have met, and this package's own meet beside them.
        monkeypatch.setattr(
            World, "known_roster", property(lambda self: roster(b"second", me))
        )
        meet(roster(b"third", me))
        assert page() is kept
        monkeypatch.undo()
        assert current() is world
        meet(roster(b"fourth", me._replace(host="another")))
        assert page() is None
        assert serving() == []

    alone(body)


def test_a_token_may_be_given(monkeypatch):
    own = "mine.0123456789-abcdef"

    def body():
        for given in ({"token": own}, {}):
            page = Page(dist.debug.start_debug_server(port=0, **given))
            assert page.token == own
            assert page.ask("/job").status == 200
            dist.debug.stop_debug_server()
            monkeypatch.setenv("ALLHANDS_DEBUG_TOKEN", own)

    alone(body)


def test_a_port_in_use_is_an_error_that_says_so():
    def body():
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(
                dist.DistNetworkError,
                match=rf"at 127\.0\.0\.1, port {port}: Address already in use; .* or 0",
            ):
                dist.debug.start_debug_server(port)
        with pytest.raises(
            dist.DistNetworkError, match=r"at 192\.0\.2\.1, port 0: Cannot assign"
        ):
            dist.debug.start_debug_server(0, host="192.0.2.1")

    alone(body)


def test_a_page_for_all_addresses_is_called_by_the_machines_name():
    def body():
        url = dist.debug.start_debug_server(port=0, host="0.0.0.0")
        assert url.startswith(f"http://{socket.gethostname()}:")
        page = Page(url.replace(socket.gethostname(), "127.0.0.1", 1))
        name = urlsplit(url).netloc
        assert page.ask("/job", Host=name).status == 200
        dist.debug.stop_debug_server()

    alone(body)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"port": -1}, r"port must be in \[0, 65536\), got -1"),
        ({"port": 65536}, r"got 65536"),
        ({"fetch_timeout": 0}, r"fetch_timeout must be in \(0, 100\] seconds, got 0"),
        ({"fetch_timeout": 100.5}, r"in \(0, 100\] seconds, got 100\.5"),
        ({"token": "short"}, "token must be 16 to 256 .* got 5 characters"),
        ({"token": "a space in it, and more"}, "token must be"),
        ({"dump_dir": "/x"}, "dump_dir must be None, got '/x'; .*ALLHANDS_DUMPS"),
        ({"handlers": []}, r"handlers must be None, got \[\]"),
        ({"enabled_dumps": ["stacks"]}, "enabled_dumps must be None"),
    ],
)
def test_what_cannot_be_is_refused(given, problem):
    def body():
        with pytest.raises(ValueError, match=problem):
            dist.debug.start_debug_server(**given)

    alone(body)


def test_without_a_world_there_is_no_page():
    with pytest.raises(ValueError, match="process group has not been initialized"):
        dist.debug.start_debug_server(0)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0", ("127.0.0.1", 0)),
        ("25999", ("127.0.0.1", 25999)),
        ("0.0.0.0:8000", ("0.0.0.0", 8000)),
        ("[::1]:1", ("::1", 1)),
    ],
)
def test_the_setting_says_where(monkeypatch, text, place):
    monkeypatch.setenv("ALLHANDS_DEBUG_SERVER", text)
    assert settings.debug_server.get() == place


@pytest.mark.parametrize("text", ["yes", "-1", "65536", "1.2.3.4:1,1.2.3.4:2", "a:1"])
def test_a_setting_that_says_nothing_is_refused(monkeypatch, text):
    monkeypatch.setenv("ALLHANDS_DEBUG_SERVER", text)
    with pytest.raises(ValueError, match="ALLHANDS_DEBUG_SERVER is"):
        settings.debug_server.get()
