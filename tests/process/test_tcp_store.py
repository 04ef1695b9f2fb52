"""TCPStore against strangers, death and shortage; the server has its own process."""

import contextlib
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from allhands import (
    DistError,
    DistNetworkError,
    DistStoreError,
    FileStore,
    TCPStore,
)
from harness import store_wire as wire
from harness.pace import patient
from harness.ports import reserved_port
from harness.ranks import LIMIT

HOST = "127.0.0.1"
SERVE = """
import resource, signal, sys
if sys.argv[1] != "0":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
import allhands
store = allhands.TCPStore("127.0.0.1", 0, is_master=True)
print(store.port, flush=True)
sys.stdin.read()
"""


class Server:
    """A process that serves a store."""

    def __init__(self, secret="", num_files=0):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(num_files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "ALLHANDS_SECRET": secret},
        )
        self.port = int(self.process.stdout.readline())

    def peak_memory(self):
        """Bytes that were resident at most, so far."""
        with open(f"/proc/{self.process.pid}/status") as status:
            (line,) = (line for line in status if line.startswith("VmHWM:"))
        return int(line.split()[1]) << 10

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            user, system = stat.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def end(self):
        """Let it exit by itself; its exit status."""
        self.process.communicate(timeout=LIMIT)
        return self.process.returncode


@pytest.fixture
def serve(monkeypatch):
    with contextlib.ExitStack() as stack:

        def start(secret="", num_files=0):
            monkeypatch.setenv("ALLHANDS_SECRET", secret)
            server = Server(secret, num_files)
            stack.enter_context(server.process)  # closes its pipes
            stack.callback(server.process.kill)
            return server

        yield start


# Strangers


def random_bytes(rng, peer):
    peer.sendall(rng.randbytes(rng.randrange(4096)))


def half_a_hello(rng, peer):
    peer.sendall(wire.hello()[: rng.randrange(64)])


def hello_of_another_kind(rng, peer):
    peer.sendall(wire.hello(version=rng.getrandbits(32), flags=rng.getrandbits(32)))


def wrong_proof(rng, peer):
    peer.sendall(wire.hello() + rng.randbytes(32 + rng.randrange(200)))


def huge_lengths(rng, peer):
    wire.shake_hands(peer)
    lengths = [rng.choice([1 << 30, (1 << 30) - 1, (1 << 32) - 1]) for _ in range(2)]
    head = wire.message(rng.choice(wire.OPS), count=2, lengths=lengths)
    peer.sendall(head + rng.randbytes(rng.randrange(2000)))


def huge_count(rng, peer):
    wire.shake_hands(peer)
    count = rng.choice([1 << 20, (1 << 20) + 1, (1 << 32) - 1])
    peer.sendall(wire.message(rng.choice(wire.OPS), count=count) + rng.randbytes(400))


def half_a_message(rng, peer):
    wire.shake_hands(peer)
    whole = wire.message(wire.SET, b"stranger", rng.randbytes(1000))
    peer.sendall(whole[: rng.randrange(len(whole))])


def random_messages(rng, peer):
    wire.shake_hands(peer)
    for _ in range(rng.randrange(1, 8)):
        fields = [b"stranger"] * rng.randrange(4)
        number = rng.choice([0, 1, -1, rng.getrandbits(62)])
        peer.sendall(wire.message(rng.randrange(25), *fields, number=number))


def silence(rng, peer):
    pass


STRANGERS = [
    random_bytes,
    half_a_hello,
    hello_of_another_kind,
    wrong_proof,
    huge_lengths,
    huge_count,
    half_a_message,
    random_messages,
    silence,
]


def disturb(port, count, rng):
    """`count` connections that break the rules; the latest hundred stay open."""
    peers = []
    for number in range(count):
        peers.append(wire.connect(port))
        if number % 2:  # closing it resets the connection
            linger = struct.pack("ii", 1, 0)
            peers[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        with contextlib.suppress(ConnectionError):
            STRANGERS[number % len(STRANGERS)](rng, peers[-1])
        if len(peers) > 100:
            peers.pop(rng.randrange(len(peers))).close()
    for peer in peers:
        peer.close()


def work(store, name, stop, seconds):
    """Uses the store until `stop`; notes how long each turn takes."""
    value = os.urandom(1000)
    while not stop.is_set():
        start = time.monotonic()
        store.set(f"{name}/k", value)
        assert store.get(f"{name}/k") == value
        assert store.add(f"{name}/n", 1) == len(seconds) + 1
        seconds.append(time.monotonic() - start)


@pytest.mark.parametrize("secret", ["", "known to few"])
def test_strangers_disturb_nobody(serve, secret):
    server = serve(secret)
    store = TCPStore(HOST, server.port)
    before = server.peak_memory()
    stop, seconds = threading.Event(), []
    start = time.monotonic()
    worker = threading.Thread(target=work, args=(store, "w", stop, seconds))
    worker.start()
    disturb(server.port, 2000, random.Random(5))
    stop.set()
    worker.join()
    assert store.get("w/n") == str(len(seconds)).encode()  # it met no error
    assert len(seconds) > 10
    assert max(seconds) < patient(2, start)
    assert server.peak_memory() - before < 50 << 20
    assert set(store.list_keys()) <= {"w/k", "w/n", "stranger"}
    if secret:
        assert "stranger" not in store.list_keys()
    assert server.end() == 0


@pytest.mark.parametrize("secret", [b"", b"s", b"long" * 50])
def test_the_handshake_is_hmac_sha256(serve, secret):
    server = serve(secret.decode())
    with wire.connect(server.port) as peer:
        verdict, got, due = wire.shake_hands(peer, secret)
    assert verdict == b"\x01\0\0\0"
    assert got == due


def test_a_recorded_proof_is_worth_nothing(serve):
    server = serve("secret")
    ours = wire.hello(nonce=bytes(32), flags=1)
    with wire.connect(server.port) as peer:
        peer.sendall(ours)
        recorded = wire.proof(b"client", b"secret", ours, wire.receive(peer, 64))
        peer.sendall(recorded)
        assert wire.receive(peer, 36)[:4] == b"\x01\0\0\0"
    with wire.connect(server.port) as peer:
        peer.sendall(ours)
        wire.receive(peer, 64)
        peer.sendall(recorded)
        assert wire.receive(peer, 100) == bytes(36)  # refused, and closed


def test_the_server_proves_the_secret_too(monkeypatch):
    """A server that merely says yes is found out."""
    monkeypatch.setenv("ALLHANDS_SECRET", "secret")
    with socket.create_server((HOST, 0)) as listener:

        def pretend():
            with listener.accept()[0] as peer:
                wire.receive(peer, 64)
                peer.sendall(wire.hello(flags=1))
                wire.receive(peer, 32)
                peer.sendall(b"\x01\0\0\0" + bytes(32))

        pretending = threading.Thread(target=pretend)
        pretending.start()
        with pytest.raises(DistNetworkError, match="has another secret"):
            TCPStore(HOST, listener.getsockname()[1])
        pretending.join()


def test_a_request_before_the_proof_is_not_read(serve):
    server = serve("secret")
    with wire.connect(server.port) as peer:
        peer.sendall(
            wire.hello(flags=1) + wire.message(wire.SET, b"stranger", b"v" * 99)
        )
        wire.receive(peer, 64 + 36)
    assert TCPStore(HOST, server.port).list_keys() == []


def test_a_reply_that_nobody_reads_holds_up_nobody(serve):
    server = serve()
    store = TCPStore(HOST, server.port)
    store.set("large", b"x" * (64 << 20))
    with wire.connect(server.port) as peer:
        wire.shake_hands(peer)
        peer.sendall(wire.message(wire.GET, b"large"))
        start = time.monotonic()
        for _ in range(100):
            store.set("k", "v")
        assert time.monotonic() - start < patient(5, start)


# Death


def test_a_killed_server_is_told_at_once(serve):
    server = serve()
    store = TCPStore(HOST, server.port)
    threading.Timer(0.1, server.process.kill).start()
    start = time.monotonic()
    with pytest.raises(DistNetworkError, match=f"{HOST}:{server.port}"):
        store.get("never")
    assert time.monotonic() - start < patient(5, start)


def test_a_stopped_server_runs_into_the_limit(serve):
    server = serve()
    store = TCPStore(HOST, server.port, timeout=timedelta(milliseconds=100))
    os.kill(server.process.pid, signal.SIGSTOP)
    os.waitpid(server.process.pid, os.WUNTRACED)  # until it has stopped
    start = time.monotonic()
    with pytest.raises(DistStoreError, match="wait timeout after 100ms, keys: /k"):
        store.set("k", "v")
    assert time.monotonic() - start < patient(5, start)
    os.kill(server.process.pid, signal.SIGCONT)
    store.set_timeout(timedelta(seconds=30))
    store.set("k", "v")
    assert store.get("k") == b"v"


def test_a_stopped_server_costs_little_more_than_the_limit(serve):
    server = serve()
    limit = timedelta(milliseconds=100)
    stores = [TCPStore(HOST, server.port, timeout=limit) for _ in range(3)]
    took = []
    with suspended(server.process):
        for store in stores:  # a busy machine takes longer, but not each time
            start = time.monotonic()
            with pytest.raises(DistStoreError, match="wait timeout after 100ms"):
                store.get("k")
            took.append(time.monotonic() - start)
    assert min(took) < 0.9


@contextlib.contextmanager
def suspended(process):
    os.kill(process.pid, signal.SIGSTOP)
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_a_server_without_a_cpu_is_not_lost(serve):
    server = serve()
    store = TCPStore(HOST, server.port, timeout=LIMIT)
    with suspended(server.process):
        for _ in range(2):  # the second one comes before the first one's answer
            with pytest.raises(DistStoreError, match="wait timeout after 100ms"):
                store.wait(["never"], timedelta(milliseconds=100))
    store.set("k", "v")
    assert store.get("k") == b"v"
    assert store.check(["k"])


def test_a_killed_client_waits_no_more(serve):
    server = serve()
    store = TCPStore(HOST, server.port)
    script = (
        f"import allhands; s = allhands.TCPStore({HOST!r}, {server.port}); "
        "s.set('there', ''); s.queue_pop('q')"
    )
    client = subprocess.Popen([sys.executable, "-c", script])
    store.wait(["there"])
    client.kill()
    client.wait()
    store.queue_push("q", "v")
    assert store.queue_pop("q", block=False) == b"v"


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_value_is_not_handed_to_who_has_gone(serve, waits, cancelled):
    """The push comes first, the client's end second; the server sees both at once."""
    server = serve()
    store = TCPStore(HOST, server.port)
    with wire.connect(server.port) as pusher, wire.connect(server.port) as client:
        for peer in pusher, client:
            wire.shake_hands(peer)
        client.sendall(wire.message(wire.QUEUE_POP, b"q", number=1))
        if waits:
            store.num_keys()  # the server has read what came before
        with suspended(server.process):
            pusher.sendall(wire.message(wire.QUEUE_PUSH, b"q", b"v"))
            if cancelled:
                client.sendall(wire.message(wire.CANCEL))
            client.close()
        assert len(wire.receive(pusher, 16)) == 16
    assert store.queue_pop("q", block=False) == b"v"


def test_a_forked_child_shares_the_store():
    script = """
import os, allhands
store = allhands.TCPStore("127.0.0.1", 0, is_master=True)
store.set("k", "parent")
child = os.fork()
if child == 0:
    assert store.get("k") == b"parent"
    store.set("k", "child")
    del store
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert store.get("k") == b"child"
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT)


MEET = """
import sys, allhands
rank, port = int(sys.argv[1]), sys.argv[2]
for meeting in range(200):
    url = f"tcp://127.0.0.1:{port}"
    allhands.init_process_group(init_method=url, rank=rank, world_size=2)
    allhands.destroy_process_group()
"""


def test_two_ranks_meet_200_times_at_one_port():
    """Without a barrier: one may come again before the other has closed the store."""
    with reserved_port() as port:
        ranks = [
            subprocess.Popen([sys.executable, "-c", MEET, str(rank), str(port)])
            for rank in (0, 1)
        ]
        try:
            assert [rank.wait(LIMIT) for rank in ranks] == [0, 0]
        finally:
            for rank in ranks:  # what one waits for may never come
                rank.kill()


# Shortage


def test_silent_strangers_give_way_to_newcomers(serve):
    server = serve(num_files=40)
    store = TCPStore(HOST, server.port)
    with contextlib.ExitStack() as peers:
        for _ in range(400):
            peers.enter_context(wire.connect(server.port))
        newcomer = TCPStore(HOST, server.port, timeout=timedelta(seconds=LIMIT))
        newcomer.set("k", "v")
        assert store.get("k") == b"v"


def test_out_of_files(serve):
    """Who has proved itself does not give way; newcomers wait without a busy server."""
    server = serve(num_files=40)
    store = TCPStore(HOST, server.port)
    with contextlib.ExitStack() as peers:
        for _ in range(60):
            peer = peers.enter_context(wire.connect(server.port))
            peer.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                wire.shake_hands(peer)
        before, begin = server.cpu_seconds(), time.monotonic()
        with pytest.raises(DistNetworkError, match="did not answer"):
            TCPStore(HOST, server.port, timeout=timedelta(milliseconds=500))
        store.set("k", "v")  # who is in goes on
        spent = server.cpu_seconds() - before
        assert spent < 0.4 * max(1, time.monotonic() - begin)
    assert TCPStore(HOST, server.port).get("k") == b"v"


@contextlib.contextmanager
def no_descriptor_left():
    """Take every descriptor of this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: TCPStore(HOST, 1),
        lambda path: TCPStore(HOST, 0, is_master=True),
        lambda path: FileStore(str(path / "store")),
    ],
)
def test_a_lack_of_descriptors_is_told_with_the_limit(tmp_path, make):
    start = time.monotonic()
    with no_descriptor_left(), pytest.raises(DistError) as caught:
        make(tmp_path)
    assert "may have 256; `ulimit -n` raises that" in str(caught.value)
    assert time.monotonic() - start < patient(5, start)  # no wait would mend it


def test_thousands_come_and_go(serve):
    server = serve(num_files=100)
    for number in range(2000):
        with wire.connect(server.port) as peer:
            wire.shake_hands(peer)
            peer.sendall(wire.message(wire.SET, b"n", str(number).encode()))
            assert wire.receive(peer, 16) == bytes(16)
    assert TCPStore(HOST, server.port).get("n") == b"1999"
