"""What every Store does, whichever it is."""

import datetime
import pickle
import threading
import time

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from allhands import (
    DistStoreError,
    FileStore,
    HashStore,
    PrefixStore,
    QueueEmptyError,
    TCPStore,
    settings,
)
from allhands._C import StoreRelay, StoreServer
from allhands.store.found import Found
from allhands.store.relayed import RelayedStore
from harness.ctrl_c import check_ctrl_c_ends
from harness.pace import patient
from harness.ranks import LIMIT
from harness.stores import DictStore, LeastStore

SHORT = datetime.timedelta(milliseconds=30)
LONG = datetime.timedelta(seconds=LIMIT)
INT64_MAX = 2**63 - 1


def make_hash(tmp_path):
    return HashStore()


def make_file(tmp_path):
    return FileStore(str(tmp_path / "store"))


def make_tcp(tmp_path):
    return TCPStore("127.0.0.1", 0, is_master=True)


class ServedHere(RelayedStore):
    """With the server and the relay in this process."""

    def __init__(self):
        secret = settings.secret.get()
        self.server = StoreServer("127.0.0.1", 0, secret, LIMIT)
        relay = StoreRelay("127.0.0.1", self.server.port, secret, LIMIT)
        self.relay = relay
        place = settings.Relay(relay.port, relay.own_address)
        super().__init__("127.0.0.1", self.server.port, None, LONG, place)


def make_relayed(tmp_path):
    return ServedHere()


def make_user_written(tmp_path):
    return DictStore()


def make_least(tmp_path):
    return LeastStore()


STORES = {
    "hash": make_hash,
    "file": make_file,
    "tcp": make_tcp,
    "relayed": make_relayed,
    "user-written": make_user_written,
    "least": make_least,
}
MAKERS = STORES | {
    f"prefix-{name}": lambda tmp_path, make=make: PrefixStore("p", make(tmp_path))
    for name, make in STORES.items()
}


@pytest.fixture(params=MAKERS)
def make(request, tmp_path):
    """Makes a fresh store, for the tests that need a place without one."""
    return lambda: MAKERS[request.param](tmp_path)


@pytest.fixture
def store(make):
    made = make()
    made.set_timeout(LONG)
    return made


@pytest.fixture
def extended(store):
    if not store.has_extended_api():
        pytest.skip("has no queues or clone of its own")
    return store


@pytest.fixture
def listing(store):
    try:
        store.list_keys()
    except NotImplementedError:
        pytest.skip("can neither list nor delete its keys")
    return store


def full(store, key):
    """The key as messages show it: with the prefix, and a slash before it."""
    return f"/p/{key}" if isinstance(store, PrefixStore) else f"/{key}"


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


# Counters


def test_add_creates_and_shows_ascii(store):
    assert store.add("n", 5) == 5
    assert store.add("n", -7) == -2
    assert store.get("n") == b"-2"


def test_add_continues_a_number_that_was_set(store):
    store.set("n", "41")
    assert store.add("n", 1) == 42


def test_add_wraps_around(store):
    assert store.add("n", INT64_MAX) == INT64_MAX
    assert store.add("n", 1) == -INT64_MAX - 1
    assert store.add("n", -1) == INT64_MAX


@pytest.mark.parametrize("text", ["abc", "1.5", "12abc", "9" * 19, "9" * 30, " "])
def test_add_to_text_is_an_error_and_harms_nothing(store, text):
    store.set("k", text)
    with pytest.raises(ValueError, match="add"):
        store.add("k", 1)
    assert store.get("k") == text.encode()
    assert store.add("n", 1) == 1


@pytest.mark.parametrize("amount", [1.0, "1", None, 2**63, -(2**63) - 1])
def test_add_takes_int64(store, amount):
    with pytest.raises(TypeError):
        store.add("n", amount)


def test_threads_add_and_lose_nothing(store):
    def work():
        for _ in range(50):
            store.add("n", 1)

    run_together(*[work] * 4)
    assert store.add("n", 0) == 200


# Compare and set


def test_compare_set(store):
    assert store.compare_set("k", "old", "new") == b"old"
    assert not store.check(["k"])
    assert store.compare_set("k", "", "first") == b"first"
    assert store.compare_set("k", "other", "second") == b"first"
    assert store.compare_set("k", "first", "second") == b"second"
    assert store.get("k") == b"second"


def test_one_of_racing_compare_sets_wins(store):
    results = []

    def work(name):
        results.append(store.compare_set("k", "", name) == name.encode())

    run_together(*[lambda name=name: work(name) for name in "abcd"])
    assert sorted(results) == [False, False, False, True]


# Keys


def test_delete_key(listing):
    listing.set("k", "v")
    assert listing.delete_key("k") is True
    assert listing.delete_key("k") is False
    assert not listing.check(["k"])


def test_keys_are_the_users_own(listing):
    own = listing.num_keys()
    assert listing.list_keys() == []
    listing.set("a", "1")
    listing.add("b", 1)
    assert listing.num_keys() == own + 2
    assert sorted(listing.list_keys()) == ["a", "b"]


def test_check(store):
    store.set("a", "1")
    assert store.check(["a"]) is True
    assert store.check(["a", "b"]) is False
    assert store.check([]) is True


def test_multi(store):
    store.multi_set(["a", "b"], ["1", b"2"])
    assert store.multi_get(["b", "a"]) == [b"2", b"1"]
    assert store.multi_get([]) == []


def test_multi_get_times_out(store):
    store.set("a", "1")
    store.set_timeout(SHORT)
    listed = ", ".join(full(store, key) for key in "ab")
    with pytest.raises(DistStoreError, match=f"after 30ms, keys: {listed}$"):
        store.multi_get(["a", "b"])


def test_multi_set_of_unequal_lists_sets_nothing(store):
    with pytest.raises(ValueError, match="2 keys but 1 values"):
        store.multi_set(["a", "b"], ["1"])
    assert not store.check(["a"])
    assert not store.check(["b"])


# Append and queues


def test_append(store):
    store.append("k", "ab")
    store.append("k", b"\xff")
    store.append("k", b"\xff")
    assert store.get("k") == b"ab\xff\xff"
    store.append("empty", "")
    assert store.get("empty") == b""


def test_threads_append_the_same_and_lose_nothing(store):
    def work():
        for _ in range(50):
            store.append("k", "x")

    run_together(*[work] * 4)
    assert store.get("k") == b"x" * 200


def test_queue_is_first_in_first_out(extended):
    for value in ("1", b"\xff", ""):
        extended.queue_push("q", value)
    assert extended.queue_len("q") == 3
    assert [extended.queue_pop("q") for _ in range(3)] == [b"1", b"\xff", b""]
    assert extended.queue_len("q") == 0


def test_empty_queue(extended):
    extended.set_timeout(SHORT)
    with pytest.raises(QueueEmptyError, match="queue is empty"):
        extended.queue_pop("q", block=False)
    message = f"^wait timeout after 30ms, keys: {full(extended, 'q')}$"
    with pytest.raises(DistStoreError, match=message):
        extended.queue_pop("q")
    assert extended.queue_len("q") == 0


def test_queue_pop_waits_for_a_push(extended):
    threading.Timer(0.02, extended.queue_push, ("q", "v")).start()
    assert extended.queue_pop("q") == b"v"


def test_a_queue_can_be_waited_for_but_is_no_key(extended):
    own = extended.num_keys()
    extended.queue_push("q", "v")
    assert extended.check(["q"])
    extended.wait(["q"])
    assert extended.num_keys() == own
    assert extended.list_keys() == []
    assert extended.delete_key("q") is False
    extended.queue_pop("q")
    assert not extended.check(["q"])


def test_threads_share_a_queue(extended):
    got = []

    def work():
        for _ in range(25):
            got.append(extended.queue_pop("q"))

    def feed():
        for number in range(100):
            extended.queue_push("q", str(number))

    run_together(feed, *[work] * 4)
    assert sorted(int(value) for value in got) == list(range(100))


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


def test_every_process_makes_its_own(make):
    with pytest.raises(TypeError, match=r"cannot (be )?pickle"):
        pickle.dumps(make())


def test_a_clone_outlives_its_original(make):
    other = make()
    if not other.has_extended_api():
        pytest.skip("has no clone")
    other = other.clone()
    other.set("k", "v")
    assert other.get("k") == b"v"


# Any sequence of operations


KEYS = st.sampled_from(["a", "b", "p/a"])
NUMBERS = st.integers(-(2**63), INT64_MAX)
VALUES = st.one_of(st.binary(max_size=8), NUMBERS.map(lambda n: b"%d" % n))


class AgainstDict(RuleBasedStateMachine):
    """A store and a dict that are told the same things."""

    make = None

    def __init__(self):
        super().__init__()
        self.store = self.make()
        self.model = {}
        for key in self.store.list_keys():
            self.store.delete_key(key)
        self.num_own_keys = self.store.num_keys()

    @rule(key=KEYS, value=VALUES)
    def set(self, key, value):
        self.store.set(key, value)
        self.model[key] = value

    @rule(key=KEYS, amount=NUMBERS)
    def add(self, key, amount):
        try:
            number = int(self.model.get(key, b"0").decode("ascii"))
        except ValueError:
            return
        if str(number).encode() == self.model.get(key, b"0"):
            total = (number + amount + 2**63) % 2**64 - 2**63
            assert self.store.add(key, amount) == total
            self.model[key] = str(total).encode()

    @rule(key=KEYS, expected=VALUES, desired=VALUES, use_current=st.booleans())
    def compare_set(self, key, expected, desired, use_current):
        current = self.model.get(key)
        if use_current and current is not None:
            expected = current
        result = self.store.compare_set(key, expected, desired)
        if (current or b"") == expected:
            self.model[key] = desired
        assert result == self.model.get(key, expected)

    @rule(key=KEYS)
    def delete(self, key):
        assert self.store.delete_key(key) == (key in self.model)
        self.model.pop(key, None)

    @rule()
    def agree(self):
        assert sorted(self.store.list_keys()) == sorted(self.model)
        assert self.store.num_keys() == self.num_own_keys + len(self.model)
        keys = sorted(self.model)
        assert self.store.multi_get(keys) == [self.model[key] for key in keys]
        assert all(self.store.check([key]) == (key in self.model) for key in "abc")

    def teardown(self):
        self.agree()


def test_any_sequence_of_operations_does_as_a_dict_would(make, listing):
    machine = type("Machine", (AgainstDict,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=hypothesis_settings(
            max_examples=30,
            stateful_step_count=20,
            suppress_health_check=list(HealthCheck),
        ),
    )


def run_together(*works):
    """Run each of `works` in a thread; what one raises is raised here."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
