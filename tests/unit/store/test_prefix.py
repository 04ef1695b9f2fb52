"""What PrefixStore does besides the contract of all stores."""

import datetime

import pytest

import allhands
from allhands import HashStore, PrefixStore, Store
from harness.stores import LeastStore


def test_keys_get_the_prefix_and_a_slash():
    base = HashStore()
    store = PrefixStore("a", PrefixStore("b/", base))
    store.set("k", "v")
    assert base.list_keys() == ["b//a/k"]
    assert store.list_keys() == ["k"]


def test_its_own_keys_are_listed_and_all_are_counted():
    base = HashStore()
    store = PrefixStore("a", base)
    base.multi_set(["k", "a", "ab/k", "a/1", "a/2"], ["v"] * 5)
    assert sorted(store.list_keys()) == ["1", "2"]
    assert store.num_keys() == 5


def test_underlying_store():
    base = HashStore()
    assert PrefixStore("a", base).underlying_store is base


def test_the_store_below_all_prefixes():
    base = HashStore()
    nested = PrefixStore("a", PrefixStore("b", base))
    assert nested._underlying_non_prefix_store is base


def test_the_timeout_is_the_underlying_stores():
    base = HashStore()
    PrefixStore("a", base).set_timeout(datetime.timedelta(seconds=2))
    assert base.timeout == datetime.timedelta(seconds=2)
    assert PrefixStore("b", base).timeout == datetime.timedelta(seconds=2)


def test_a_wait_without_a_timeout_reaches_the_base_without_one():
    class OldForm(Store):
        def wait(self, keys):
            self.waited = keys

    base = OldForm()
    PrefixStore("a", base).wait(["k"])
    assert base.waited == ["a/k"]


def test_what_is_no_store_is_refused():
    with pytest.raises(ValueError, match="store argument cannot be None"):
        PrefixStore("a", None)
    with pytest.raises(TypeError, match="store must be a Store, got 5"):
        PrefixStore("a", 5)
    with pytest.raises(TypeError):
        PrefixStore(None, HashStore())


class Witness(Store):
    """Notes what its methods get."""

    def __init__(self):
        self.calls = []

    def set(self, *arguments):
        self.calls.append(arguments)

    append = multi_set = queue_push = set

    def compare_set(self, *arguments):
        self.calls.append(arguments)
        return b""


@pytest.mark.parametrize("value", ["v", b"v", bytearray(b"v")])
def test_a_users_store_gets_bytes_whatever_the_caller_gave(value):
    base = Witness()
    store = PrefixStore("a", base)
    store.set("k", value)
    store.append("k", value)
    store.queue_push("k", value)
    store.multi_set(["k"], [value])
    store.compare_set("k", value, value)
    assert base.calls == [
        ("a/k", b"v"),
        ("a/k", b"v"),
        ("a/k", b"v"),
        (["a/k"], [b"v"]),
        ("a/k", b"v", b"v"),
    ]
    types = {
        type(call[-1][0] if call[-1] == [b"v"] else call[-1]) for call in base.calls
    }
    assert types == {bytes}


def test_a_world_meets_over_a_store_that_has_only_compare_set():
    class Meeting(LeastStore):
        def set(self, key, value):
            assert type(value) is bytes
            super().set(key, value)

        def compare_set(self, key, expected_value, desired_value):
            assert type(expected_value) is type(desired_value) is bytes
            return super().compare_set(key, expected_value, desired_value)

    allhands.init_process_group(store=Meeting(), rank=0, world_size=1)
    allhands.new_group([0])
    allhands.destroy_process_group()
