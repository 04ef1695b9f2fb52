"""How long thousands of ranks on many hosts take to meet, and what the store takes.

    python benchmarks/meeting.py [--hosts N] [--ranks N] [--no-relays]

All of it runs on this machine: the store's server in a process of its own, the relays
of the hosts in another one. Rank 0 and the last rank are real: they run the code by
which `init_process_group` meets, and check the roster. The other ranks are simulated in
two processes: they send what real ranks send, over connections of their own, but decode
no roster, which the ranks of real hosts do at the same time. With `--no-relays` each
rank connects to the server. The exit status is 1 if the meeting takes 5 s.
"""

import argparse
import hashlib
import hmac
import json
import multiprocessing
import os
import resource
import selectors
import socket
import struct
import sys
import time
from datetime import timedelta

from allhands import settings
from allhands._C import StoreRelay, StoreServer
from allhands.rendezvous.exchange import exchange
from allhands.rendezvous.hosted import open_store
from allhands.rendezvous.identity import Identity, Introduction

HERE = "127.0.0.1"
SECRET = "of this benchmark"
LIMIT = timedelta(seconds=120)
LONGEST_S = 5.0
# csrc/allhands/store/protocol.hpp
VERSION = 4
SET, GET, ADD, WAIT, WILL = 1, 2, 3, 6, 20
WORLD = "attempt_0/1"
FORK = multiprocessing.get_context("fork")


def host_id(host):
    return f"host{host}"


class Peer:
    """A simulated rank's connection: shakes hands, then has one request at a time."""

    def __init__(self, port):
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex((HERE, port))
        self.hello = struct.pack(
            "<8sII16s32s", b"ahstore\n", VERSION, 1, b"", os.urandom(32)
        )
        self.received = bytearray()
        self.expects = self._greeted
        self.is_open = False

    def request(self, code, *fields, number=0):
        head = struct.pack(
            f"<IIq{len(fields)}I", code, len(fields), number, *map(len, fields)
        )
        self.socket.sendall(head + b"".join(fields))

    def read(self):
        """Take what has come; return a reply's number and fields if one is complete."""
        self.received += self.socket.recv(1 << 20)
        return self.expects()

    def _greeted(self):
        if len(self.received) < 64:
            return None
        text = b"allhands store client" + self.hello + bytes(self.received[:64])
        self.socket.sendall(hmac.digest(SECRET.encode(), text, hashlib.sha256))
        del self.received[:64]
        self.expects = self._let_in
        return None

    def _let_in(self):
        if len(self.received) < 36:
            return None
        assert self.received[:4] == b"\x01\0\0\0", "the server refuses the secret"
        del self.received[:36]
        self.expects = self._replied
        self.is_open = True
        return 0, []

    def _replied(self):
        if len(self.received) < 16:
            return None
        status, count, number = struct.unpack_from("<IIq", self.received)
        assert status == 0, f"status {status}"
        lengths = struct.unpack_from(f"<{count}I", self.received, 16)
        at = 16 + 4 * count
        if len(self.received) < at + sum(lengths):
            return None
        fields = []
        for length in lengths:
            fields.append(bytes(self.received[at : at + length]))
            at += length
        self.received.clear()
        return number, fields


def simulated(rank, size, per_host):
    """Yield a rank's connection and request, to which it gets the reply."""
    host, me = rank // per_host, str(rank)
    said = Identity(
        f"boot/{host_id(host)}", 1000 + rank, 5, f"10.0.{host}.1:{20000 + rank}"
    )
    yield "will", WILL, [f"attempt_0/default_pg/died/{me}", me], 0
    yield "own", ADD, [f"attempt_0/join/{me}"], 1
    yield "own", SET, [f"{WORLD}/identity/{me}", Introduction(size, said).to_bytes()], 0
    yield "own", GET, [f"{WORLD}/identity/0"], 0
    _, [outcome] = yield "own", GET, [f"{WORLD}/outcome"], 0
    problem, *_ = json.loads(outcome)
    assert not problem, problem
    if host:
        place = f"{WORLD}/host/{hashlib.sha256(said.host.encode()).hexdigest()[:16]}"
        come, _ = yield "own", ADD, [f"{place}/num_come"], 1
        if come == 1:
            yield "own", GET, [f"{WORLD}/roster"], 0
            yield "own", SET, [f"{place}/copy", json.dumps([*said, 3])], 0
        else:
            yield "own", GET, [f"{place}/copy"], 0
    yield "own", SET, [f"{WORLD}/read/{me}", b""], 0
    if host and come == 1:
        first = host * per_host
        peers = range(first, min(first + per_host, size - 1))
        yield "own", WAIT, [f"{WORLD}/read/{peer}" for peer in peers], 0
    yield "will", WILL, [], 0


def as_bytes(field):
    return field.encode() if isinstance(field, str) else field


class Rank:
    """A simulated rank and its two connections."""

    def __init__(self, steps, port, events):
        self.steps, self.port, self.events = steps, port, events
        self.peers = {}
        self.advance(None)

    def advance(self, reply):
        """Send the next request. Returns whether there is none."""
        try:
            self.name, *self.wanted = self.steps.send(reply)
        except StopIteration:
            for peer in self.peers.values():
                self.events.unregister(peer.socket)
                peer.socket.close()
            return True
        peer = self.peers.get(self.name)
        if peer is None:
            peer = self.peers[self.name] = Peer(self.port)
            self.events.register(peer.socket, selectors.EVENT_WRITE, (self, peer))
        else:
            self.ask(peer)
        return False

    def ask(self, peer):
        code, fields, number = self.wanted
        peer.request(code, *map(as_bytes, fields), number=number)

    def serve(self, peer, event):
        """Go on with a connection that is ready. Returns whether the rank is done."""
        if event & selectors.EVENT_WRITE:  # it is connected
            peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.socket.sendall(peer.hello)
            self.events.modify(peer.socket, selectors.EVENT_READ, (self, peer))
            return False
        was_open = peer.is_open
        reply = peer.read()
        if reply is None:
            return False
        if not was_open:
            self.ask(peer)
            return False
        return self.advance(reply)


def simulate(ranks, size, per_host, ports):
    """Be these ranks until all of them have met the others."""
    events = selectors.EpollSelector()
    for rank in ranks:
        Rank(simulated(rank, size, per_host), ports[rank // per_host], events)
    left = len(ranks)
    while left:
        for key, event in events.select():
            rank, peer = key.data
            left -= rank.serve(peer, event)


def be_real(rank, size, port, relay, host):
    """Be a rank as `init_process_group` has it."""
    os.environ[settings.host_id.name] = host_id(host)
    store = open_store(HERE, port, rank, size, LIMIT, True, relay)
    roster = exchange(store, rank, size, LIMIT, "benchmark", found=store)
    assert len(roster.identities) == size
    assert len({each.host for each in roster.identities}) > 1
    roster.port.close()


def serve(told, asked):
    """The server's process."""
    server = StoreServer(HERE, 0, SECRET, LIMIT.total_seconds())
    told.send(server.port)
    before = time.process_time()
    asked.recv()
    traffic = server.traffic()
    cpu = time.process_time() - before
    bytes_moved = traffic.bytes_received + traffic.bytes_sent
    told.send((cpu, traffic.connections, traffic.requests, bytes_moved))


def relay_for(hosts, port, told, asked):
    """The relays' process."""
    limit = LIMIT.total_seconds()
    relays = [StoreRelay(HERE, port, SECRET, limit) for _ in range(1, hosts)]
    told.send([relay.port for relay in relays])
    asked.recv()
    told.send(time.process_time())


def started(target, *args):
    """Start a process; return the ends by which it tells and is asked."""
    told, telling = FORK.Pipe(False)
    hearing, asking = FORK.Pipe(False)
    FORK.Process(target=target, args=(*args, telling, hearing), daemon=True).start()
    return told, asking


def measure(hosts, per_host, has_relays):
    """Return how long the meeting took, and what the server and the relays tell."""
    size = hosts * per_host
    server, ask_server = started(serve)
    port = server.recv()
    ports, relay = [port] * hosts, None
    if has_relays:
        relays, ask_relays = started(relay_for, hosts, port)
        ports = [port, *relays.recv()]
        relay = settings.Relay(ports[-1], HERE)
    begin = time.monotonic()
    others = range(1, size - 1)
    processes = [
        FORK.Process(target=be_real, args=(0, size, port, None, 0)),
        FORK.Process(target=be_real, args=(size - 1, size, port, relay, hosts - 1)),
        FORK.Process(target=simulate, args=(others[::2], size, per_host, ports)),
        FORK.Process(target=simulate, args=(others[1::2], size, per_host, ports)),
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LIMIT.total_seconds())
    took = time.monotonic() - begin
    assert all(process.exitcode == 0 for process in processes), "a rank failed"
    ask_server.send(None)
    figures = server.recv()
    if has_relays:
        ask_relays.send(None)
        relays.recv()
    return took, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=32, help="of a host")
    parser.add_argument("--no-relays", action="store_true")
    given = parser.parse_args()
    os.environ[settings.secret.name] = SECRET
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    took, figures = measure(given.hosts, given.ranks, not given.no_relays)
    cpu, connections, requests, bytes_moved = figures
    print(
        f"{given.hosts * given.ranks:,} ranks on {given.hosts} hosts met in "
        f"{took:.2f} s. The server took {cpu:.2f} s of CPU time for "
        f"{connections:,} connections, {requests:,} requests and "
        f"{bytes_moved / 1e6:.1f} MB"
    )
    return took >= LONGEST_S


if __name__ == "__main__":
    sys.exit(main())
