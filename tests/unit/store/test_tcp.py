"""What is special to TCPStore; tests/contract holds what every store does."""

import contextlib
import copy
import gc
import os
import pathlib
import pickle
import socket
import threading
import time
from datetime import timedelta

import pytest

from allhands import DistNetworkError, DistStoreError, TCPStore
from allhands._C import StoreServer
from allhands.store import tcp
from harness.ctrl_c import check_ctrl_c_ends
from harness.launcher import wait_until
from harness.pace import patient
from harness.ports import needs_ipv6, reserved_port
from harness.store_wire import GET, SET, connect, message, receive, shake_hands

HOST = "127.0.0.1"
SHORT = timedelta(milliseconds=50)


def master(host=HOST, port=0, **arguments):
    return TCPStore(host, port, is_master=True, **arguments)


@pytest.fixture
def store():
    return master()


@pytest.fixture
def unused_port():
    with reserved_port() as port:
        yield port


# Server and clients


def test_clients_see_one_store(store):
    worker = TCPStore(HOST, store.port)
    worker.set("k", "v")
    assert store.get("k") == b"v"
    assert (worker.host, worker.port) == (HOST, store.port)


def test_properties(store):
    assert store.port > 0
    assert store.timeout == timedelta(seconds=300)
    assert store.has_extended_api()
    assert repr(store) == f"TCPStore('127.0.0.1', {store.port}, is_master=True)"


def test_client_waits_for_its_server(unused_port):
    made = []
    late = threading.Timer(0.1, lambda: made.append(master(port=unused_port)))
    late.start()
    TCPStore(HOST, unused_port).set("k", "v")
    late.join()
    assert made[0].get("k") == b"v"


def test_no_server(unused_port):
    message = (
        r"The client socket has timed out after 100ms while trying to connect to "
        rf"\(127.0.0.1, {unused_port}\): .*refused"
    )
    with pytest.raises(DistNetworkError, match=message):
        TCPStore(HOST, unused_port, timeout=timedelta(milliseconds=100))


def test_unknown_host_is_looked_up_until_the_limit():
    with pytest.raises(DistNetworkError, match="timed out after 100ms"):
        TCPStore("no-such-host.invalid", 1, timeout=timedelta(milliseconds=100))


def test_port_out_of_range():
    with pytest.raises(ValueError, match="from 0 to 65535 but was 99999"):
        TCPStore(HOST, 99999)
    with pytest.raises(TypeError, match="port must be an int, got '80'"):
        TCPStore(HOST, "80")


def test_a_world_size_of_0_is_refused():
    with pytest.raises(ValueError, match="TCPStore world size cannot be 0"):
        master(world_size=0)


def test_a_world_size_that_is_no_int_is_refused():
    with pytest.raises(TypeError):
        master(world_size="1")


def test_a_negative_world_size_means_any_number():
    store = master(world_size=-1, timeout=SHORT)  # it waits for nobody
    assert TCPStore(HOST, store.port, -1).list_keys() == []


def test_port_in_use_names_its_owner(store):
    with pytest.raises(DistNetworkError, match="EADDRINUSE") as caught:
        master(port=store.port)
    text = str(caught.value)
    words = "The server socket has failed to listen on any local network address for "
    assert text.startswith(f"{words}127.0.0.1:{store.port}: EADDRINUSE")
    assert f"process {os.getpid()} (" in text
    assert "MASTER_PORT" in text
    assert "port 0" in text


def test_listens_at_no_other_address(unused_port):
    store = master("127.0.0.2", unused_port)
    TCPStore("127.0.0.2", store.port).set("k", "v")
    with pytest.raises(DistNetworkError, match="refused"):
        TCPStore("127.0.0.1", store.port, timeout=SHORT)


def test_every_address():
    store = master("0.0.0.0")
    for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0"):
        TCPStore(host, store.port).add("n", 1)
    assert store.get("n") == b"3"


def test_another_machines_address():
    with pytest.raises(DistNetworkError, match="no address of this machine"):
        master("192.0.2.1")


def test_a_master_that_cannot_reach_itself_says_so_in_time():
    """A multicast address can be listened at, but nobody can connect to it."""
    start = time.monotonic()
    with pytest.raises(
        DistNetworkError, match=r"serves a store at 224\.0\.0\.1:\d+, but .*unreachable"
    ):
        master("224.0.0.1")
    assert time.monotonic() - start < patient(15, start)


def test_a_master_waits_for_its_server_that_has_no_cpu(monkeypatch):
    """No server answers so soon, as none does while its process is stopped."""
    monkeypatch.setattr(tcp, "_OWN_SERVER_LIMIT_S", 1e-9)
    store = master()
    store.set("a", b"1")
    assert TCPStore("127.0.0.1", store.port).get("a") == b"1"


@needs_ipv6
def test_ipv6():
    store = master("::1")
    TCPStore("::1", store.port).set("k", "v")
    assert store.get("k") == b"v"
    with pytest.raises(DistNetworkError, match=rf"\[::1\]:{store.port}"):
        master("::1", store.port)


def test_listen_fd():
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    store = master(port=port, master_listen_fd=listener.detach())
    assert store.port == port
    TCPStore(HOST, port).set("k", "v")


def test_listen_fd_of_another_port(unused_port):
    listener = socket.create_server((HOST, 0))
    with pytest.raises(ValueError, match=f"expected {unused_port}"):
        master(port=unused_port, master_listen_fd=listener.detach())


def test_multi_tenant_masters_share_a_server():
    first = master(multi_tenant=True)
    second = master(port=first.port, multi_tenant=True)
    first.set("k", "v")
    del first
    assert second.get("k") == b"v"
    with pytest.raises(DistNetworkError, match="EADDRINUSE"):
        master(port=second.port)


def test_world_size_waits_for_all(unused_port):
    makers = [
        threading.Thread(target=TCPStore, args=(HOST, unused_port, 3)) for _ in range(2)
    ]
    for maker in makers:
        maker.start()
    store = master(port=unused_port, world_size=3)
    for maker in makers:
        maker.join()
    assert store.list_keys() == []


def test_workers_that_are_waited_for_are_one_key():
    """As in torch; `list_keys` doesn't show it."""
    limit = timedelta(seconds=20)
    store = TCPStore(HOST, 0, None, True, limit, wait_for_workers=False)
    TCPStore(HOST, store.port, 2, False, limit, wait_for_workers=False)
    assert store.num_keys() == 0
    for _ in range(2):
        TCPStore(HOST, store.port)
        assert store.num_keys() == 1
    assert store.list_keys() == []


def test_world_size_times_out():
    message = r"Timed out after 0\.05 s waiting for clients. 1/2 clients joined."
    with pytest.raises(DistStoreError, match=message):
        master(world_size=2, timeout=SHORT)


def test_world_size_without_waiting():
    assert master(world_size=2, wait_for_workers=False).list_keys() == []


@pytest.mark.parametrize("use_libuv", [True, False])
def test_use_libuv_can_be_read_and_changes_nothing(use_libuv):
    store = master(use_libuv=use_libuv)
    assert store.libuvBackend is use_libuv
    assert TCPStore(HOST, store.port).libuvBackend is True
    store.queue_push("q", "v")
    assert store.queue_pop("q") == b"v"


# Ends


def test_a_server_that_went_is_told_at_once():
    store = master()
    worker = TCPStore(HOST, store.port)
    where = f"{HOST}:{store.port}"
    threading.Timer(0.1, lambda: stores.clear()).start()
    stores = [store]
    del store
    start = time.monotonic()
    with pytest.raises(DistNetworkError, match=where):
        worker.get("never")
    with pytest.raises(DistNetworkError, match=where):
        worker.set("k", "v")
    assert time.monotonic() - start < patient(5, start)


def test_a_new_server_at_the_same_port_is_not_the_old_one():
    store = master()
    worker = TCPStore(HOST, store.port)
    port = store.port
    del store
    store = master(port=port)
    with pytest.raises(DistNetworkError, match="lost"):
        worker.set("k", "v")
    assert store.list_keys() == []


def held():
    """How many file descriptors and threads this process has, in all."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")) + len(os.listdir("/proc/self/task"))


def test_stores_leave_nothing_behind():
    master().clone().set("k", "v")
    before = held()
    for _ in range(50):
        store = master()
        TCPStore(HOST, store.port).clone().set("k", "v")
        del store
    assert held() <= before


def test_a_failed_constructor_leaves_nothing_behind():
    before = held()
    with pytest.raises(DistStoreError):
        master(world_size=2, timeout=SHORT)
    assert held() <= before


def test_a_clone_keeps_the_server():
    other = master().clone()
    other.set("k", "v")
    assert other.get("k") == b"v"


def test_is_not_picklable(store):
    for make in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            make(store)


def test_ctrl_c_while_connecting(unused_port):
    check_ctrl_c_ends(lambda: TCPStore(HOST, unused_port))


# Limits


def test_keys_are_bounded(store):
    store.set("k" * 65536, "v")
    with pytest.raises(ValueError, match="65537 bytes"):
        store.set("k" * 65537, "v")
    assert store.list_keys() == ["k" * 65536]


# Servers that are none of ours


@pytest.mark.parametrize("use_libuv", [True, False])
def test_the_store_of_torch_is_named_with_what_to_do(use_libuv):
    c10d = pytest.importorskip("torch.distributed")
    server = c10d.TCPStore(HOST, 0, is_master=True, use_libuv=use_libuv)
    start = time.monotonic()
    with pytest.raises(DistNetworkError, match=f"{HOST}:{server.port} is PyTorch's"):
        TCPStore(HOST, server.port)
    assert time.monotonic() - start < patient(5, start)


def test_a_server_that_says_nothing_gets_the_whole_limit():
    with (
        socket.create_server((HOST, 0)) as listener,
        pytest.raises(DistNetworkError, match=r"after 2000ms .*did not answer"),
    ):
        TCPStore(HOST, listener.getsockname()[1], timeout=timedelta(seconds=2))


# The secret


@pytest.fixture
def secret(monkeypatch):
    def set_secret(value):
        monkeypatch.setenv("ALLHANDS_SECRET", value)

    return set_secret


def test_same_secret(secret):
    secret("s" * 100)
    store = master()
    TCPStore(HOST, store.port).set("k", "v")
    assert store.get("k") == b"v"


@pytest.mark.parametrize(
    ("server", "client", "message"),
    [
        ("one", "other", "has another secret"),
        ("one", "", "asks for the job's secret, and this process has none"),
        ("", "other", "has no secret, and this process has one"),
    ],
)
def test_other_secret(secret, server, client, message):
    secret(server)
    store = master()
    secret(client)
    with pytest.raises(DistNetworkError, match=f"{message}.*ALLHANDS_SECRET"):
        TCPStore(HOST, store.port)
    store.set("k", "v")  # with the connection it has


def test_not_a_store_server():
    with socket.create_server((HOST, 0)) as listener:

        def answer():
            with listener.accept()[0] as peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n".ljust(64))

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(DistNetworkError, match="no store server of ours"):
            TCPStore(HOST, listener.getsockname()[1])
        answering.join()


def test_a_server_counts_what_passes():
    server = StoreServer(HOST, 0, "", 20.0)

    def counts():
        traffic = server.traffic()
        return (
            *(traffic.connections, traffic.requests),
            *(traffic.bytes_received, traffic.bytes_sent),
        )

    assert counts() == (0, 0, 0, 0)
    value = bytes(100_000)
    requests = message(SET, b"key", value), message(GET, b"key")
    replies = message(0), message(0, value)
    with connect(server.port) as peer:
        verdict, proof, _ = shake_hands(peer)
        for request, reply in zip(requests, replies, strict=True):
            peer.sendall(request)
            assert receive(peer, len(reply)) == reply
        received = 64 + 32 + len(b"".join(requests))
        sent = 64 + len(verdict + proof) + len(b"".join(replies))
        expected = (1, 2, received, sent)
        # With the last reply there, the server may still be about to count it.
        wait_until(lambda: counts() == expected, 20, f"{expected}")


def test_after_a_cut_what_was_lost_is_sent_again_each_second(store):
    """By default the kernel waits for as long again as the cut has lasted."""
    longest_retry = 44  # TCP_RTO_MAX_MS, in milliseconds; Linux 6.15
    with socket.socket() as probe:
        try:
            probe.getsockopt(socket.IPPROTO_TCP, longest_retry)
        except OSError:
            pytest.skip("the kernel has no such option")
    found = []
    for link in pathlib.Path("/proc/self/fd").iterdir():
        if not link.is_symlink() or not os.readlink(link).startswith("socket:"):
            continue
        with socket.socket(fileno=os.dup(int(link.name))) as connection:
            if connection.family != socket.AF_INET or connection.getsockname()[1] == 0:
                continue
            with contextlib.suppress(OSError):  # it only listens
                if connection.getpeername()[1] == store.port:
                    value = connection.getsockopt(socket.IPPROTO_TCP, longest_retry)
                    found.append(value)
    assert found
    assert set(found) == {1000}
