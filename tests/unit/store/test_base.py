"""What the Store interface makes of a subclass's primitives."""

import datetime
import threading

import pytest

from allhands import DistStoreError, HashStore, Store, TCPStore

SECOND = datetime.timedelta(seconds=1)


class Bare(Store):
    """No primitive at all."""


class Counters(Store):
    """The fewest primitives that wait and barrier need."""

    def __init__(self):
        self.data = {}
        self.lock = threading.Lock()

    def set(self, key, value):
        self.data[key] = value

    def add(self, key, amount):
        with self.lock:
            self.data[key] = self.data.get(key, 0) + amount
            return self.data[key]

    def check(self, keys):
        return all(key in self.data for key in keys)

    def list_keys(self):
        return list(self.data)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("set", ("k", "v")),
        ("get", ("k",)),
        ("add", ("k", 1)),
        ("append", ("k", "v")),
        ("check", (["k"],)),
        ("wait", (["k"],)),
        ("compare_set", ("k", "", "v")),
        ("delete_key", ("k",)),
        ("num_keys", ()),
        ("list_keys", ()),
        ("queue_push", ("k", "v")),
        ("queue_pop", ("k",)),
        ("queue_len", ("k",)),
        ("clone", ()),
    ],
)
def test_what_a_subclass_lacks_is_named(method, arguments):
    with pytest.raises(NotImplementedError, match="Bare does not implement"):
        getattr(Bare(), method)(*arguments)


def test_timeout_needs_no_super_init():
    store = Counters()
    assert store.timeout == 300 * SECOND
    store.set_timeout(SECOND)
    assert store.timeout == SECOND
    assert Counters().timeout == 300 * SECOND


def test_wait_polls_check():
    store = Counters()
    threading.Timer(0.02, store.set, ("k", "v")).start()
    store.wait(["k"], 10 * SECOND)
    assert store.check(["k"])


def test_num_keys_counts_list_keys():
    store = Counters()
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.num_keys() == 2


def test_barrier_rounds_do_not_pass_on_an_old_mark():
    store = Counters()
    store.barrier("b", 1)
    store.barrier("b", 1)
    assert store.data["b/num_members"] == 2
    assert set(store.data) == {"b/num_members", "b/last_member", "b/last_member/1"}


def test_a_timed_out_barrier_is_spent():
    store = Counters()
    with pytest.raises(
        DistStoreError, match="barrier timeout after 20ms, key: b, 1 of"
    ):
        store.barrier("b", 2, SECOND / 50)
    with pytest.raises(DistStoreError, match=r"abandoned.* key: b; use another key"):
        store.barrier("b", 2)


class Interrupted(BaseException):
    """As a program's own handler of a signal may raise."""


def test_a_barrier_that_another_exception_ends_is_spent():
    class Ended(Counters):
        def wait(self, keys, timeout=None):
            raise Interrupted

    store = Ended()
    with pytest.raises(Interrupted):
        store.barrier("b", 2)
    with pytest.raises(DistStoreError, match=r"abandoned.* key: b; use another key"):
        store.barrier("b", 2)


def test_barrier_of_no_number_is_refused():
    for store in (HashStore(), TCPStore("127.0.0.1", 0, is_master=True)):
        with pytest.raises(TypeError, match="world_size must be an int, got '2'"):
            store.barrier("b", "2")


def test_a_host_is_a_text():
    with pytest.raises(TypeError, match="host_name must be a str, got None"):
        TCPStore(None, 0, is_master=True)


def test_barrier_of_nobody_is_refused():
    with pytest.raises(ValueError, match="world_size must be positive, got 0"):
        Counters().barrier("b", 0)
