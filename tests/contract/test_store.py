"""What every Store does, whichever it is."""

import datetime
import pickle
import threading
import time

import pytest

from allhands import (
    DistStoreError,
)
from allhands.store.found import Found
from harness.ctrl_c import check_ctrl_c_ends
from harness.pace import patient
from harness.ranks import LIMIT
from harness.store_kinds import LONG, SHORT, full
from harness.stores import DictStore, LeastStore
from harness.together import run_together

# Values


def test_a_survey_tells_of_numbered_keys(store):
    store.set("k/0", "v")
    store.set("k/2", "")
    store.set("k/10", "v")
    found = [Found.SOME_VALUE, Found.NOTHING, Found.EMPTY_VALUE, Found.NOTHING]
    assert [*store._survey("k/", 4)] == found
    assert [*store._survey("k/", 11)] == found + [0] * 6 + [Found.SOME_VALUE]
    assert store._survey("k/", 0) == b""


def test_a_value_is_got_within_a_limit(store):
    with pytest.raises(RuntimeError):
        store._get_within("k", SHORT)
    threading.Timer(0.05, store.set, ("k", "v")).start()
    assert store._get_within("k", LONG) == b"v"


@pytest.mark.parametrize("value", [b"", b"v", b"\x00\xff\n", b"x" * (9 << 20)])
def test_set_get(store, value):
    store.set("k", value)
    assert store.get("k") == value


def test_values_come_back_as_bytes(store):
    store.set("k", "grüße")
    assert store.get("k") == "grüße".encode()


def test_set_replaces(store):
    store.set("k", "1")
    store.set("k", "22")
    assert store.get("k") == b"22"


@pytest.mark.parametrize("key", ["", "/", "a/b", "ключ", "k" * 5000, "k\n"])
def test_any_text_is_a_key(store, key):
    store.set(key, "v")
    assert store.get(key) == b"v"


@pytest.mark.parametrize("key", ["", "/", "a/b", "k\n"])
def test_any_key_is_listed_as_it_is(listing, key):
    listing.set(key, "v")
    assert listing.list_keys() == [key]


@pytest.mark.parametrize("value", [5, None, 1.5, ["v"]])
def test_other_values_are_refused(store, value):
    is_ours = not isinstance(store, DictStore | LeastStore)
    with pytest.raises(
        TypeError, match="must be str or bytes, got" if is_ours else None
    ):
        store.set("k", value)
    assert not store.check(["k"])


def test_a_key_that_is_no_text_is_refused(store):
    if isinstance(store, DictStore | LeastStore):
        pytest.skip("checks keys in a way of its own")
    for use in (
        lambda: store.set("\ud800", "v"),
        lambda: store.wait(["\ud800"], datetime.timedelta(seconds=1)),
    ):
        with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
            use()
    store.set("\u00e4", "v")
    assert store.get("\u00e4") == b"v"


def test_other_keys_are_refused(store):
    is_ours = not isinstance(store, DictStore)
    match = "a store's key must be str, got 5" if is_ours else None
    with pytest.raises(TypeError, match=match):
        store.get(5)
    with pytest.raises(TypeError, match=match):
        store.set(5, "v")


def test_no_other_key_is_deleted(listing):
    with pytest.raises(TypeError):
        listing.delete_key(5)


# Waiting


def test_get_waits_for_a_later_set(store):
    threading.Timer(0.02, store.set, ("k", "v")).start()
    assert store.get("k") == b"v"


def test_get_times_out(store):
    store.set_timeout(SHORT)
    message = f"^wait timeout after 30ms, keys: {full(store, 'missing')}$"
    with pytest.raises(DistStoreError, match=message):
        store.get("missing")


def test_wait_uses_the_timeout_of_the_store(store):
    store.set_timeout(SHORT)
    with pytest.raises(DistStoreError, match=r"^wait timeout after 30ms"):
        store.wait(["missing"])


def test_wait_lists_every_key_present_or_not(store):
    store.set("m1", "v")
    keys = ["m1", "nope1", "nope2"]
    listed = ", ".join(full(store, key) for key in keys)
    with pytest.raises(DistStoreError, match=f"after 30ms, keys: {listed}$"):
        store.wait(keys, SHORT)


def test_limits_are_kept_to_the_millisecond(store):
    start = time.monotonic()
    with pytest.raises(DistStoreError):
        store.wait(["missing"], SHORT)
    elapsed = time.monotonic() - start
    assert 0.03 <= elapsed < patient(1, start)


def test_wait_for_what_is_there(store):
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.wait(["a", "b"]) is None
    assert store.wait(["a", "b"], datetime.timedelta(0)) is None
    assert store.wait(["a"], datetime.timedelta.max) is None
    assert store.wait([]) is None


def test_wait_of_zero_looks_once(store):
    with pytest.raises(DistStoreError, match="wait timeout after 0ms"):
        store.wait(["missing"], datetime.timedelta(0))


def test_a_lone_str_is_no_list_of_keys(store):
    store.set("a", "v")
    for call in (store.check, store.wait, store.multi_get):
        with pytest.raises(TypeError):
            call("a")


def test_what_is_no_key_is_refused_behind_a_key_that_is_missing(store):
    if isinstance(store, DictStore):
        pytest.skip("checks keys in a way of its own")
    for call in (store.check, store.wait, store.multi_get):
        with pytest.raises(TypeError, match="key must be str, got 5"):
            call(["missing", 5])


def test_timeout_is_a_timedelta(store):
    with pytest.raises(TypeError):
        store.set_timeout(5)
    with pytest.raises(TypeError):
        store.wait(["k"], 5)
    assert store.timeout == LONG


def test_limits_may_be_floats_of_seconds(store):
    store.set("a", "v")
    store.wait(["a"], 30.0)
    with pytest.raises(DistStoreError, match="wait timeout after 20ms"):
        store.wait(["missing"], 0.02)
    store.set_timeout(2.5)
    assert store.timeout == datetime.timedelta(seconds=2.5)


def test_keys_come_in_any_collection(store):
    if isinstance(store, DictStore):
        pytest.skip("checks keys in a way of its own")
    store.set("a", "v")
    assert store.check({"a"})
    store.wait(key for key in "a")
    assert store.multi_get({"a": 1}.keys()) == [b"v"]


def test_a_wait_holds_up_nobody(store):
    got = []
    waiting = threading.Thread(target=lambda: got.append(store.get("later")))
    waiting.start()
    for number in range(20):
        store.set(f"k{number}", "v")
    store.set("later", "v")
    waiting.join(LIMIT)
    assert got == [b"v"]


@pytest.mark.parametrize("method", ["get", "wait", "queue_pop", "barrier"])
def test_ctrl_c_ends_a_wait(store, method):
    if method == "queue_pop" and not store.has_extended_api():
        pytest.skip("has no queues")
    arguments = {"wait": (["k"],), "barrier": ("k", 2)}.get(method, ("k",))
    check_ctrl_c_ends(lambda: getattr(store, method)(*arguments))
    store.set("still", "works")
    assert store.get("still") == b"works"


# Barrier and clone


def test_barrier_lets_go_when_all_have_come(store):
    order = []

    def work():
        for number in range(3):
            order.append(number)
            store.barrier("b", 3)

    run_together(*[work] * 3)
    assert order == [0] * 3 + [1] * 3 + [2] * 3


def test_barrier_times_out(store):
    key = full(store, "b").removeprefix("/")
    with pytest.raises(
        DistStoreError, match=f"^barrier timeout after 30ms, key: {key}"
    ):
        store.barrier("b", 2, SHORT)


def test_clone_shares_data_but_not_the_timeout(extended):
    other = extended.clone()
    assert other.timeout == LONG
    other.set_timeout(SHORT)
    other.set("k", "v")
    assert extended.get("k") == b"v"
    assert extended.timeout == LONG


def test_every_process_makes_its_own(make_store):
    with pytest.raises(TypeError, match=r"cannot (be )?pickle"):
        pickle.dumps(make_store())


def test_a_clone_outlives_its_original(make_store):
    other = make_store()
    if not other.has_extended_api():
        pytest.skip("has no clone")
    other = other.clone()
    other.set("k", "v")
    assert other.get("k") == b"v"
