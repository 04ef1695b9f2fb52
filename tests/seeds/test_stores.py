"""The reference's store examples, each on all stores that may stand in for TCPStore."""

import threading
import time
from datetime import timedelta

import pytest

import allhands as dist


@pytest.fixture(params=["tcp", "hash", "file"])
def store(request, tmp_path):
    if request.param == "tcp":
        return dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=30))
    if request.param == "hash":
        return dist.HashStore()
    return dist.FileStore(str(tmp_path / "filestore"), 1)


def test_a_tcp_server_and_a_client():
    server = []
    made = threading.Event()

    def serve():  # "process 1"; its constructor waits for the client
        listening = dist.TCPStore(
            "127.0.0.1", 0, 2, True, timedelta(seconds=30), wait_for_workers=False
        )
        server.append(listening)
        made.set()
        listening.set("first_key", "first_value")

    thread = threading.Thread(target=serve)
    thread.start()
    assert made.wait(30)
    client = dist.TCPStore("127.0.0.1", server[0].port, 2, False)
    assert client.get("first_key") == b"first_value"
    thread.join()


def test_a_hash_store_serves_other_threads():
    store = dist.HashStore()
    thread = threading.Thread(target=store.set, args=("first_key", "first_value"))
    thread.start()
    assert store.get("first_key") == b"first_value"  # waits for it
    thread.join()


def test_two_file_stores_on_one_file(tmp_path):
    path = str(tmp_path / "filestore")
    store1, store2 = dist.FileStore(path, 2), dist.FileStore(path, 2)
    store1.set("first_key", "first_value")
    assert store2.get("first_key") == b"first_value"


def test_prefix_store(store):
    dist.PrefixStore("trainer", store).set("first_key", "first_value")
    assert store.get("trainer/first_key") == b"first_value"


def test_set_and_get(store):
    store.set("first_key", "first_value")
    assert store.get("first_key") == b"first_value"


def test_add(store):
    store.add("first_key", 1)
    assert store.add("first_key", 6) == 7
    assert store.get("first_key") == b"7"


def test_append(store):
    store.append("first_key", "po")
    store.append("first_key", "tato")
    assert store.get("first_key") == b"potato"


def test_check(store):
    store.add("first_key", 1)
    assert store.check(["first_key"]) is True
    assert store.check(["first_key", "bad_key"]) is False


def test_compare_set(store):
    store.set("key", "first_value")
    assert store.compare_set("key", "first_value", "second_value") == b"second_value"
    assert store.get("key") == b"second_value"


def test_multi_set_and_multi_get(store):
    store.multi_set(["first_key", "second_key"], ["po", "tato"])
    assert store.get("first_key") == b"po"
    assert store.multi_get(["first_key", "second_key"]) == [b"po", b"tato"]


def test_num_keys(store):
    store.set("first_key", "first_value")
    assert store.num_keys() == (1 if type(store) is dist.HashStore else 2)


def test_delete_key(store):
    store.set("first_key", "first_value")
    assert store.delete_key("first_key") is True
    assert store.delete_key("bad_key") is False


def test_set_without_a_value_as_the_page_prints_it(store):
    with pytest.raises(TypeError):
        store.set("first_key")


def test_barrier(store):
    store.barrier("my_barrier", 1)
    store.barrier("my_barrier2", 1, timedelta(seconds=10))
    with pytest.raises(dist.DistStoreError):  # the second rank never comes
        store.barrier("my_barrier3", 2, timedelta(seconds=0.2))


def test_wait_ends_with_the_timeout_of_its_own(store):
    check_wait(store, lambda: store.wait(["bad_key"], timedelta(seconds=0.2)))


def test_wait_ends_with_the_timeout_of_the_store(store):
    store.set_timeout(timedelta(seconds=0.2))
    check_wait(store, lambda: store.wait(["bad_key"]))


def test_wait_ends_with_the_timeout_that_the_store_was_made_with():
    store = dist.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=0.2))
    check_wait(store, lambda: store.wait(["bad_key"]))


def check_wait(store, wait):
    """Hold that `wait` raises after 0.2 s, and that the store goes on."""
    start = time.monotonic()
    with pytest.raises(dist.DistStoreError, match="bad_key"):
        wait()
    assert time.monotonic() - start >= 0.2
    store.set("bad_key", "now it is there")
    store.wait(["bad_key"])
