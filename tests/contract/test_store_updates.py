"""How every Store changes values: alone, with others, and in any order."""

import threading

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from allhands import DistStoreError, QueueEmptyError
from harness.store_kinds import SHORT, full
from harness.together import run_together

INT64_MAX = 2**63 - 1


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


def test_any_sequence_of_operations_does_as_a_dict_would(make_store, listing):
    machine = type("Machine", (AgainstDict,), {"make": staticmethod(make_store)})
    run_state_machine_as_test(
        machine,
        settings=hypothesis_settings(
            max_examples=30,
            stateful_step_count=20,
            suppress_health_check=list(HealthCheck),
        ),
    )
