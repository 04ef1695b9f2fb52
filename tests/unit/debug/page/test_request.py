"""Requests to the debug page: what it answers, to whom, and what it refuses."""

import io
import json
import math
import os
import select
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import allhands as dist
from allhands.debug import server
from allhands.debug.job_record import read_job
from allhands.debug.page import answers, job_view, listener, request
from allhands.groups.world import World, use
from allhands.store import HashStore
from harness.debug_page import DATA, Page
from harness.launcher import wait_until
from harness.pace import patient
from harness.ranks import GROUP_LIMIT

STATIC = ("/", "/page.css", "/page.js")
SECURE = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


@pytest.fixture
def page():
    """Of a world of one rank, which has reduced twice."""
    with use(World()):
        dist.init_process_group(store=HashStore(), rank=0, world_size=1)
        try:
            dist.all_reduce(np.ones(3))
            dist.all_reduce(np.ones(3))
            yield Page(dist.debug.start_debug_server(port=0))
        finally:
            dist.debug.stop_debug_server()
            dist.destroy_process_group()


def answering():
    """Threads that answer connections."""
    return [t for t in threading.enumerate() if t.name.endswith("page: answer")]


def no_thread_is_left():
    wait_until(lambda: not answering(), 20, "no thread answers")


def status(reply):
    """Of raw bytes; 0: there is none."""
    line = reply.partition(b"\r\n")[0].split()
    return int(line[1]) if len(line) > 1 and line[0].startswith(b"HTTP/") else 0


@pytest.mark.parametrize("path", STATIC)
def test_the_page_itself_is_for_all_and_has_nothing_of_the_job(page, path):
    reply = page.ask(path, token="")
    assert reply.status == 200
    assert len(reply.body) == int(reply.headers["Content-Length"])
    assert page.token.encode() not in reply.body
    assert b"http" not in reply.body.replace(b"http://www.w3.org/2000/svg", b"")
    policy = reply.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert SECURE.items() <= reply.headers.items()
    assert reply.headers["Server"] == "allhands"


def test_a_client_with_the_token_sees_the_job(page, tmp_path):
    facts = page.ask("/job").json()
    assert (facts["rank"], facts["size"]) == (0, 1)
    assert facts["verdict"] is None
    assert facts["silent"] == []
    [rank] = facts["ranks"]
    assert rank["pid"] == os.getpid()
    [main] = [each for each in rank["threads"] if each["is_main"]]
    assert any("test_request.py" in frame for frame in main["frames"])
    calls = [each["call"] for each in rank["operations"]]
    assert calls == ["all_reduce(float64, count 3, SUM)"] * 2
    [group] = facts["groups"]
    assert group["reached"] == [[0, 2, 2]]
    bars = [e for e in facts["timeline"]["traceEvents"] if e["ph"] == "X"]
    assert [bar["name"] for bar in bars] == ["all_reduce"] * 2

    record = page.ask("/record")
    assert "filename=" in record.headers["Content-Disposition"]
    path = tmp_path / "record.json"
    path.write_bytes(record.body)
    [dump] = read_job([path]).dumps
    assert len(dump.entries) == 2
    assert "traceEvents" in page.ask("/trace").json()
    assert page.ask("/live").json() == {"ranks": []}  # a thread is no rank of a host
    assert page.ask("/nothing").status == 404


@pytest.mark.parametrize("path", [*DATA, "/nothing", "/page.css/", "/.."])
def test_without_the_token_there_is_nothing(page, path):
    right, wrong = page.token, page.token[:-1] + ("a" if page.token[-1] != "a" else "b")
    tries = [
        {},
        {"Authorization": f"Bearer {wrong}"},
        {"Authorization": f"Basic {right}"},
        {"Authorization": right},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {right}a"},
        {"Authorization": "Bearer \xe9\xff" + right},
        {"Cookie": f"token={right}"},
    ]
    for headers in tries:
        reply = page.ask(path, token="", **headers)
        assert reply.status == 401, headers
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert SECURE.items() <= reply.headers.items()
        assert right.encode() not in reply.body
    assert page.ask(f"{path}?token={right}", token="").status == 401


@pytest.mark.parametrize(
    "method",
    ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X" * 99],
)
def test_nothing_can_be_written(page, method):
    for path in ("/", "/job", "/nothing"):
        reply = page.ask(path, method=method, body=b"x" * 100_000)
        assert reply.status == 405
        assert reply.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/job"])
def test_head_has_all_but_the_body(page, path):
    head = page.ask(path, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) > 100
    assert SECURE.items() <= head.headers.items()


def test_the_name_with_the_domain_is_the_machines_too(monkeypatch, page):
    monkeypatch.setattr(request, "_whole_name", lambda: "host0.cluster.example")
    for name, expected in (("HOST0.cluster.example", 200), ("cluster.example", 421)):
        assert page.ask("/job", Host=f"{name}:25999").status == expected


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["127.0.0.1"], 200),
        (["localhost:8000"], 200),  # as through ssh -L 8000:127.0.0.1:25999
        (["LOCALHOST"], 200),
        (["[::1]:1"], 200),
        (["10.1.2.3:25999"], 200),
        ([socket.gethostname()], 200),
        (["evil.example"], 421),
        (["127.0.0.1.evil.example"], 421),
        (["localhost.evil.example:80"], 421),
        (["127.0.0.1@evil.example"], 421),
        ([""], 421),
        ([], 421),
        (["[bad"], 421),
        (["127.0.0.1", "evil.example"], 421),
        (["\xff\xfe"], 421),
    ],
)
def test_only_own_names_are_answered_to(page, hosts, expected):
    """Else a page of somebody's would be read under a name that leads here."""
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    for path in ("/", "/job"):
        request = f"GET {path} HTTP/1.1\r\n{lines}Authorization: Bearer {page.token}"
        reply = page.say(request.encode("latin-1") + b"\r\n\r\n")
        assert status(reply) == expected
        assert b"evil" not in reply


HOSTILE = {
    "nothing": b"",
    "an empty line": b"\r\n",
    "no request": b"\r\n\r\n\r\n",
    "zeros": b"\0" * 1000,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "a long line": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    "no end": b"GET / HTTP/1.1\r\nHos",
    "a long header": b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 200 + b"\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
    "no version": b"GET /\r\nHost: localhost\r\n\r\n",
    "an old version": b"GET / HTTP/0.9\r\nHost: localhost\r\n\r\n",
    "a new version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "no number": b"GET / HTTP/x.y\r\nHost: localhost\r\n\r\n",
    "a long number": b"GET / HTTP/1." + b"1" * 5000 + b"\r\nHost: localhost\r\n\r\n",
    "many words": b"GET / / / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a bare word": b"GET\r\n\r\n",
    "no bytes of ASCII": b"\xff\xfe\xfd / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
PATHS = [
    "/%zz%00%",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/../../../../etc/passwd",
    "//etc/passwd",
    "/page.js%00.html",
    "/page.py",
    "/listener.py",
    "\\..\\page.js",
    "http://evil.example/",
    "http://[bad/",
    "*",
    "page.js",
    "/\x01\x7f\xe9",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_get_an_error_and_disturb_nobody(page, name, capfd):
    reply = page.say(HOSTILE[name])
    assert status(reply) in (0, 400, 405, 414, 421, 431, 505), reply
    assert len(reply) < 2000
    assert page.ask("/job").status == 200
    no_thread_is_left()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", PATHS)
def test_paths_lead_to_what_there_is_or_nowhere(page, path, capfd):
    for token, expected in ((page.token, 404), ("no", 401)):
        lines = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
        request = f"{lines}Authorization: Bearer {token}\r\n\r\n".encode("latin-1")
        reply = page.say(request)
        assert status(reply) == expected
        assert b"evil" not in reply
    assert capfd.readouterr() == ("", "")


def test_silent_clients_keep_nobody_out(monkeypatch, page):
    monkeypatch.setattr(listener, "_ROOM_S", float(GROUP_LIMIT))
    clients = [page.connect() for _ in range(50)]
    try:
        for client in clients:
            client.sendall(b"GET / HT")
        assert page.ask("/job").status == 200
        assert len(answering()) <= 16
    finally:
        for client in clients:
            client.close()
    no_thread_is_left()


def test_who_has_an_answer_and_stays_keeps_nobody_out(monkeypatch, page):
    monkeypatch.setattr(listener, "_ROOM_S", float(GROUP_LIMIT))
    monkeypatch.setattr(listener, "_LINGER_S", float(GROUP_LIMIT))
    clients = []
    try:
        for _ in range(2 * listener._MOST):
            clients.append(client := page.connect())
            client.sendall(b"GET /job HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with client.makefile("rb") as replies:
                assert status(replies.read()) == 401
        assert page.ask("/job").status == 200
    finally:
        for client in clients:
            client.close()
    no_thread_is_left()


def test_who_goes_on_talking_is_listened_to_no_longer_than_others(monkeypatch):
    now, waits = [0.0], []

    class Talker:
        def shutdown(self, how):
            assert how == socket.SHUT_WR

        def settimeout(self, seconds):
            waits.append(seconds)

        def recv(self, size):
            now[0] += 0.25
            return b"x"

    monkeypatch.setattr(listener, "time", SimpleNamespace(monotonic=lambda: now[0]))
    listener._end(Talker(), 0.5)
    assert waits == [0.5, 0.25, 0.0]


def test_records_are_not_kept_for_longer_than_they_serve_others(monkeypatch, page):
    """Those of all ranks may be large, and this is a rank that computes."""
    found = server._server._page.listener._tidy.__self__._record
    assert page.ask("/job").status == 200
    assert found._found is not None
    monkeypatch.setattr(answers, "_FRESH_S", 0.0)
    wait_until(lambda: found._found is None, 60, "it is let go")


def test_so_are_those_found_while_the_listener_sleeps(monkeypatch):
    monkeypatch.setattr(listener, "_READ_S", 1000.0)
    found, is_asleep, is_let_go = [], threading.Event(), threading.Event()
    looks = iter(range(100))

    def tidy():
        if next(looks) == 1:
            is_asleep.set()  # from here on until something is due
        elif found:
            is_let_go.set()
        return False

    def answer(connection):
        page.has_read(connection)
        assert is_asleep.wait(GROUP_LIMIT)
        found.append("a result")

    page = listener.Listener("127.0.0.1", 0, answer, tidy)
    page.start()
    try:
        with socket.create_connection(("127.0.0.1", page.port)) as client:
            client.recv(1)  # until it has its answer
        assert is_let_go.wait(60)
    finally:
        page.close()


@pytest.mark.parametrize("is_talking", [False, True])
def test_who_takes_too_long_is_cut_off(monkeypatch, page, is_talking):
    """Also one that says something all the time, and never what it wants."""
    monkeypatch.setattr(listener, "_READ_S", 0.2)
    start = time.monotonic()
    with page.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: ")
        while True:
            readable, _, _ = select.select([client], [], [], 0.01)
            if readable:
                break
            assert time.monotonic() - start < patient(20, start)
            if is_talking:
                client.sendall(b"a")
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            assert is_talking
    assert time.monotonic() - start >= 0.2
    no_thread_is_left()


def test_too_many_real_requests_are_told_to_come_again(monkeypatch, page):
    """Those that are being answered are not cut off for others."""
    begun, go = threading.Semaphore(0), threading.Event()

    def slow(pids):
        begun.release()
        assert go.wait(60)
        return {}

    monkeypatch.setattr(job_view, "jobs", slow)
    monkeypatch.setattr(answers, "_FRESH_S", math.inf)
    replies = []
    threads = [
        threading.Thread(target=lambda: replies.append(page.ask("/live").status))
        for _ in range(listener._MOST)
    ]
    for thread in threads:
        thread.start()
    try:
        taken = server._server._page.listener._open
        all_asked = [False] * len(threads)
        wait_until(
            lambda: [each.is_reading for each in list(taken)] == all_asked,
            20,
            "all have asked",
        )
        assert page.ask("/").status == 503
    finally:
        go.set()
        for thread in threads:
            thread.join()
    assert replies == [200] * len(threads)
    assert begun.acquire(blocking=False)
    assert not begun.acquire(blocking=False)  # all got the same look


def test_what_goes_wrong_is_told_to_who_asks(monkeypatch, page, capfd):
    def fail(*_):
        raise OSError("no\ud800thing")

    monkeypatch.setattr(job_view, "told_now", fail)
    reply = page.ask("/job")
    assert reply.status == 500
    assert reply.body == b"OSError: no?thing\n"
    assert page.ask("/").status == 200
    assert capfd.readouterr() == ("", "")


def test_names_of_the_job_are_data(page):
    """Whatever a program calls its groups and threads."""
    name = "<script>alert(1)</script>\"'\x01\x7f\\"
    group = dist.new_group(group_desc=name)
    dist.barrier(group=group)
    stay = threading.Event()
    thread = threading.Thread(target=stay.wait, name=name)
    thread.start()
    try:
        reply = page.ask("/job")
    finally:
        stay.set()
        thread.join()
    facts = json.load(io.BytesIO(reply.body))
    assert reply.headers["Content-Type"] == "application/json"
    shown = name.replace("\x01", r"\x01").replace("\x7f", r"\x7f")
    assert shown in [each["desc"] for each in facts["groups"]]
    assert shown in [each["name"] for each in facts["ranks"][0]["threads"]]
