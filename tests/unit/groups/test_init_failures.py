"""Worlds that cannot be made: every rank is told why, and does not wait for nothing."""

import re
import threading
import time
from datetime import timedelta

import pytest

import allhands as dist
from allhands.groups.world import World, use
from harness.pace import patient
from harness.ports import reserved_port
from harness.ranks import LIMIT, run_ranks
from harness.worlds import init, total, url_of


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"init_method": "env://"}, AssertionError, "both init_method and store"),
        ({"world_size": 0}, AssertionError, "world_size must be positive if using"),
        ({"rank": -1}, AssertionError, "rank must be non-negative if using store"),
        ({"rank": 1}, ValueError, r"rank must be in \[0, 1\), got 1"),
        ({"world_size": 10**9}, ValueError, "world_size must be at most 1048576"),
        ({"rank": "0"}, TypeError, "rank must be an int, got '0'"),
        ({"world_size": "1"}, TypeError, "world_size must be an int, got '1'"),
        ({"backend": "env://"}, ValueError, "'env://' is no backend but a URL: pass"),
        ({"backend": "nope"}, AssertionError, "Unknown backend type nope"),
        ({"timeout": 5}, TypeError, r"of type datetime\.timedelta, got 5"),
    ],
)
def test_init_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        init(**arguments)
    assert not dist.is_initialized()


def test_init_twice_is_refused():
    def body(rank):
        with pytest.raises(
            ValueError, match="initialize the default process group twi"
        ):
            init()

    run_ranks(1, body)


def test_init_names_the_ranks_that_did_not_come():
    store = dist.HashStore()
    message = r"waited 1 s .* 2 of 4 ranks, which did not come: \[0, 3\]"
    start = threading.Barrier(2)

    def some(rank):
        if rank in (1, 2):
            start.wait(LIMIT)
            with pytest.raises(dist.DistStoreError, match=f"rank {rank}.*{message}"):
                init(store, rank, 4, timeout=timedelta(seconds=1))
            assert not dist.is_initialized()

    def everyone(rank):
        init(store, rank, 4)
        return total()

    run_ranks(4, some, init=False)
    assert run_ranks(4, everyone, init=False) == [6] * 4


def test_init_tells_of_two_processes_with_one_rank():
    store = dist.HashStore()
    start = threading.Barrier(3)

    def body(number):
        rank = min(number, 1)
        start.wait(LIMIT)
        with pytest.raises(dist.DistStoreError, match="did not come") as caught:
            init(store, rank, 3, timeout=timedelta(seconds=1.5 if rank else 0.5))
        return str(caught.value)

    first, *_ = run_ranks(3, body, init=False)
    assert "1 of 3 ranks, which did not come: [2]; several processes say" in first
    assert first.endswith("that they are rank 1")


def test_init_tells_of_different_world_sizes():
    store = dist.HashStore()

    def body(rank):
        message = rf"rank {rank} .* has world_size {2 + rank}, rank {1 - rank} has"
        with pytest.raises(ValueError, match=f"{message} {3 - rank};"):
            init(store, rank, 2 + rank, timeout=timedelta(seconds=LIMIT))

    run_ranks(2, body, init=False)


def test_a_rank_learns_at_once_that_rank_0_waits_for_more():
    store = dist.HashStore()

    def body(rank):
        error = (dist.DistStoreError, ValueError)[rank]
        limit = timedelta(seconds=[1, LIMIT][rank])
        with pytest.raises(error, match=r"world_size 2, rank 0 has 3|come: \[2\]|up"):
            init(store, rank, 3 - rank, timeout=limit)

    run_ranks(2, body, init=False)


def test_every_rank_names_who_is_missing_though_rank_0_hosts_the_store():
    def body(rank, port):
        start = time.monotonic()
        with pytest.raises(dist.DistStoreError) as caught:
            dist.init_process_group(
                init_method=url_of(port, rank, 4),
                timeout=timedelta(seconds=LIMIT if rank else 1),
            )
        assert time.monotonic() - start < patient(10, start)
        return str(caught.value)

    with reserved_port() as port:
        texts = run_ranks(3, lambda rank: body(rank, port), init=False)
    wait = (
        "timed out: waited 1 s (its timeout) for 1 of 4 ranks, which did not come: [3]"
    )
    assert texts[0] == f"init_process_group: rank 0 (this process) {wait}"
    for rank in (1, 2):
        start = f"init_process_group: rank {rank} (this process) heard from rank 0: it"
        assert texts[rank] == f"{start} {wait}"


def test_a_store_that_is_lost_once_rank_0_has_come_is_not_waited_for(monkeypatch):
    monkeypatch.setenv("ALLHANDS_PATIENCE", "0.05")
    with reserved_port() as port:
        servers = [dist.TCPStore("127.0.0.1", port, is_master=True)]
        servers[0].set("default_pg/0//1/identity/0", '[3, "host", 1, 1, ""]')

        def body(rank):
            if rank == 0:  # rank 1 looks at this once it waits for the others
                servers[0].wait(["default_pg/0//1/num_told"])
                servers.clear()
                return
            start = time.monotonic()
            with pytest.raises(dist.DistNetworkError, match=r"rank 1 .*lost the store"):
                dist.init_process_group(
                    init_method=url_of(port, rank, 3), timeout=timedelta(seconds=LIMIT)
                )
            assert time.monotonic() - start < patient(5, start)

        run_ranks(2, body, init=False)


def test_init_tells_of_a_store_that_was_lost():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    store = dist.TCPStore("127.0.0.1", server.port)
    timer = threading.Timer(0.2, lambda held: held.clear(), [[server]])
    del server
    timer.start()
    with pytest.raises(dist.DistNetworkError, match=r"rank 0 .*lost the store before"):
        init(store, 0, 2, timeout=timedelta(seconds=LIMIT))
    timer.join()


def test_a_negative_timeout_is_refused():
    with use(World()), pytest.raises(ValueError, match=r"not be negative, got -1\.0 s"):
        init(timeout=timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("device", "kind"),
    [(1.5, TypeError), ([0], TypeError), ("cpu", ValueError), ("cuda", ValueError)],
)
def test_a_device_id_is_an_accelerator_with_an_index(device, kind):
    text = f"init_process_group: device_id must be .*, got {re.escape(repr(device))}"
    with pytest.raises(kind, match=text):
        init(device_id=device)
    assert not dist.is_initialized()


def test_an_empty_backend_is_unknown():
    with pytest.raises(AssertionError, match="Unknown backend type"):
        init(backend="")
