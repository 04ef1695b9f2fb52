"""The life of a FileStore's file."""

import datetime
import gc
import os
import re
import signal
import struct
import tempfile
import threading
import time
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allhands import DistStoreError, FileStore
from allhands.store.found import Found
from allhands.store.log import Log
from harness.ctrl_c import check_ctrl_c_ends
from harness.pace import patient

SECOND = datetime.timedelta(seconds=1)


def test_path(path):
    assert FileStore(path).path == path
    assert FileStore(os.fsencode(path)).path == path


def test_users_of_one_file_share_data(path):
    one, other = FileStore(path, 2), FileStore(path, 2)
    one.set("k", "v")
    assert other.get("k") == b"v"


def test_the_last_of_world_size_users_removes_the_file(path):
    one, other = FileStore(path, 2), FileStore(path, 2)
    del one
    assert os.path.exists(path)
    del other
    assert not os.path.exists(path)


def test_garbage_collected_amid_an_operation_leaves_after_it(path):
    lost, store = FileStore(path, 2), FileStore(path, 2)
    circle = [lost]
    circle.append(circle)
    del lost, circle
    start = time.monotonic()
    store._do(gc.collect)  # to leave now would be to wait for the lock that we have
    assert time.monotonic() - start < patient(4, start)
    del store
    assert not os.path.exists(path)


def test_an_early_leaver_leaves_its_data(path):
    FileStore(path, 2).set("k", "v")
    other = FileStore(path, 2)
    assert other.get("k") == b"v"
    del other
    assert not os.path.exists(path)


def test_a_clone_keeps_its_user_there(path):
    store = FileStore(path, 1)
    clone = store.clone()
    del store
    assert os.path.exists(path)
    clone.set("k", "v")
    del clone
    assert not os.path.exists(path)


def test_a_world_size_that_is_no_int_is_refused(path):
    with pytest.raises(TypeError, match="'str' object cannot be interpreted as an int"):
        FileStore(path, "1")


def test_without_world_size_the_file_stays_with_its_data(path):
    FileStore(path).set("k", "v")
    assert FileStore(path).get("k") == b"v"


def test_the_file_can_be_used_again_and_again(path):
    for _ in range(100):
        one, other = FileStore(path, 2), FileStore(path, 2)
        assert one.list_keys() == []
        assert {one.add("n", 1), other.add("n", 1)} == {1, 2}
        del one, other


def test_a_file_without_data_is_taken(path):
    open(path, "w").close()
    assert FileStore(path).list_keys() == []


def test_only_the_user_may_read_it(path):
    store = FileStore(path)
    store.set("k", "v")
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("place", "reason"),
    [("missing/store", "No such file or directory"), ("", "Is a directory")],
)
def test_an_unwritable_path_is_an_error_at_once(tmp_path, place, reason):
    path = os.path.join(tmp_path, place)
    message = f"FileStore '{re.escape(path)}' cannot be opened: {reason}"
    with pytest.raises(DistStoreError, match=message):
        FileStore(path, 1)


@pytest.mark.parametrize("text", ["mine", "a longer text, with\nmore than one line\n"])
def test_another_kind_of_file_is_not_touched(tmp_path, text):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(DistStoreError, match="is not a store's file"):
        FileStore(str(path), 1)
    assert path.read_text() == text


@pytest.mark.parametrize("cut", [1, 5, 17, 20])
def test_a_record_that_was_never_finished_is_cut_off(path, cut):
    store = FileStore(path)
    store.set("k", "v")
    size = os.path.getsize(path)
    store.set("unfinished", "value")
    os.truncate(path, size + cut)
    other = FileStore(path)
    assert other.list_keys() == ["k"]
    other.set("next", "v")
    assert FileStore(path).multi_get(["k", "next"]) == [b"v", b"v"]


def test_an_unfinished_first_line_is_written_again(path):
    with open(path, "w") as file:
        file.write("allhands st")
    FileStore(path).set("k", "v")
    assert FileStore(path).get("k") == b"v"


def test_damage_is_an_error_that_says_where(path):
    FileStore(path).set("k", "value")
    with open(path, "r+b") as file:
        data = file.read().replace(b"value", b"vaLue")
        file.seek(0)
        file.write(data)
    with pytest.raises(DistStoreError, match=r"is damaged at byte [0-9]+; remove it"):
        FileStore(path)


def test_a_full_disk_is_an_error_and_changes_nothing(path, monkeypatch):
    store, other = FileStore(path), FileStore(path)
    store.set("k", "old")
    pwrite = os.pwrite

    def pwrite_some(file, data, offset):
        if len(data) < 10:
            raise OSError(28, "No space left on device")
        return pwrite(file, data[: len(data) - 5], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite_some)
        with pytest.raises(DistStoreError, match=r"cannot be extended.*No space left"):
            store.set("k", "new")
    assert store.get("k") == b"old"
    assert other.get("k") == b"old"
    store.set("k", "new")
    assert other.get("k") == b"new"


def test_an_operation_that_was_interrupted_changes_nothing(path, monkeypatch):
    store, other = FileStore(path), FileStore(path)
    store.set("k", "old")

    def interrupted(self, records):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Log, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.set("k", "new")
    assert store.get("k") == b"old"
    assert other.get("k") == b"old"


def test_a_lock_that_is_never_freed_is_an_error(path):
    store, log = FileStore(path), Log(path)
    store.set_timeout(SECOND / 50)
    with log.locked(SECOND), pytest.raises(DistStoreError, match=r"lock for 0.02 s"):
        store.set("k", "v")
    log.close()
    store.set("k", "v")


def test_a_file_that_is_removed_while_one_waits_to_enter(path):
    """The newcomer must not settle in a file that the last user has just unlinked."""
    first = FileStore(path, 1)
    log = Log(path)
    with log.locked(SECOND):
        newcomers = []
        thread = threading.Thread(target=lambda: newcomers.append(FileStore(path, 1)))
        thread.start()
        log.remove()
    thread.join()
    log.close()
    newcomers[0].set("k", "v")
    assert FileStore(path).get("k") == b"v"
    del first
    assert os.path.exists(path)


# Many users


@pytest.fixture
def tries(monkeypatch):
    """Whether each try to take the lock succeeded, in order."""
    tries = []
    try_to_lock = Log.try_to_lock

    def noted(log):
        has_news = try_to_lock(log)
        tries.append(has_news is not None)
        return has_news

    monkeypatch.setattr(Log, "try_to_lock", noted)
    return tries


def test_a_survey_takes_the_lock_once(path, tries):
    store = FileStore(path)
    store.set("k/7", "v")
    tries.clear()
    assert [*store._survey("k/", 100)].count(Found.SOME_VALUE) == 1
    assert tries == [True]


@pytest.mark.parametrize("are_expected", [True, False])
def test_of_many_users_each_looks_seldom(path, tries, are_expected):
    """Else they take the CPUs from the one that has the lock."""
    stores = [FileStore(path, 200 if are_expected else -1)]
    stores += [FileStore(path) for _ in range(0 if are_expected else 199)]
    store = stores[-1]
    store.set_timeout(SECOND / 5)
    tries.clear()
    with pytest.raises(DistStoreError, match="wait timeout"):
        store.get("k")
    assert 2 <= len(tries) <= 7
    log = Log(path)
    with log.locked(SECOND):
        tries.clear()
        with pytest.raises(DistStoreError, match=r"lock for 0.2 s"):
            store.set("k", "v")
        assert 2 <= len(tries) <= 7
    log.close()


# What a file says


KEYS = st.sampled_from("ab")
VALUES = st.binary(max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.just("add"), KEYS, st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("append"), KEYS, VALUES),
    st.tuples(st.just("compare_set"), KEYS, VALUES, VALUES),
    st.tuples(st.just("delete_key"), KEYS),
    st.tuples(st.just("queue_push"), KEYS, VALUES),
    st.tuples(st.just("queue_pop"), KEYS, st.just(False)),
)


# Where the machine is busy a draw may take a second.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS))
def test_who_comes_later_reads_the_same_table(steps):
    with tempfile.TemporaryDirectory() as folder:
        store = FileStore(f"{folder}/store")
        for method, *arguments in steps:
            try:
                getattr(store, method)(*arguments)
            except (ValueError, DistStoreError):  # no number, an empty queue
                assert method in ("add", "queue_pop")
        other = FileStore(f"{folder}/store")
        assert content(other) == content(store)


def content(store):
    """What the store holds in memory once it has read the file; empties its queues."""
    keys, table = sorted(store.list_keys()), store._table
    lengths = {key: table.queue_length(key) for key in "ab"}
    queues = [[table.pop(key) for _ in range(lengths[key])] for key in "ab"]
    return keys, table.find_all(keys), queues


def record(kind, key, value=b"", key_size=None, value_size=None):
    """A record with the right CRC, whatever it says."""
    sizes = (
        len(key) if key_size is None else key_size,
        len(value) if value_size is None else value_size,
    )
    rest = struct.pack("<BIQ", kind, *sizes) + key + value
    return struct.pack("<I", zlib.crc32(rest)) + rest


@pytest.mark.parametrize(
    "hostile",
    [
        record(1, b"\xff", b"v"),  # no UTF-8
        record(99, b"k", b"v"),  # no such kind
        record(0, b"k", b"v"),
        record(1, b"k", key_size=2**32 - 1),
        record(1, b"k", value_size=2**63),
    ],
)
def test_a_record_without_sense_is_damage(path, hostile):
    FileStore(path).set("k", "v")
    size = os.path.getsize(path)
    with open(path, "ab") as file:
        file.write(hostile)
    with pytest.raises(DistStoreError, match=r"is damaged at byte [0-9]+; remove it"):
        FileStore(path)
    assert os.path.getsize(path) == size + len(hostile)


@pytest.mark.parametrize("kind", [3, 5])
def test_to_delete_what_is_not_there_is_nothing(path, kind):
    FileStore(path).set("k", "v")
    with open(path, "ab") as file:
        file.write(record(kind, b"nothing"))
    assert FileStore(path).list_keys() == ["k"]


@pytest.mark.parametrize("begin", [b"", b"allhands store 1\n"])
def test_a_huge_file_of_another_kind_is_not_read(path, begin):
    with open(path, "wb") as file:
        file.write(begin)
        file.truncate(1 << 40)  # a hole: it takes no space, and minutes to read
    start = time.monotonic()
    with pytest.raises(DistStoreError, match=r"not a store's file|damaged at byte 17"):
        FileStore(path)
    assert time.monotonic() - start < patient(5, start)


def test_a_file_that_was_cut_short_is_an_error(path):
    store = FileStore(path)
    store.set("k", "v")
    os.truncate(path, 0)
    with pytest.raises(DistStoreError, match="was cut short by somebody else"):
        store.get("k")


def test_keys_and_values_are_bounded_as_in_a_tcp_store(path):
    store = FileStore(path)
    store.set("k" * 65536, "v")
    with pytest.raises(ValueError, match="a key of 65537 bytes"):
        store.set("k" * 65537, "v")
    assert store.list_keys() == ["k" * 65536]


def test_the_users_are_one_key(path):
    """As in torch, whose FileStore lists it, too."""
    store = FileStore(path, 1)
    assert store.num_keys() == 1
    store.set("k", "v")
    assert store.num_keys() == store.clone().num_keys() == 2
    assert store.list_keys() == ["k"]


# Interrupts


def test_ctrl_c_is_not_lost_while_a_dropped_store_waits_to_leave(path):
    stores, log = [FileStore(path, 1)], Log(path)
    with log.locked(SECOND):
        check_ctrl_c_ends(stores.clear)
    log.close()


def test_a_signal_handler_that_uses_the_store_amid_its_use_is_told(path):
    store = FileStore(path)
    errors = []

    def use(number, frame):
        try:
            store.set("k", "v")
        except DistStoreError as error:
            errors.append(str(error))

    before = signal.signal(signal.SIGUSR1, use)
    try:
        store._do(signal.raise_signal, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(errors) == 1
    assert "amid an operation of the same thread" in errors[0]
    store.set("k", "v")
    assert FileStore(path).get("k") == b"v"


def test_a_thread_that_waits_for_the_lock_does_not_hold_up_the_others(path):
    """Each has its own limit, though both share one user of the file."""
    store, log = FileStore(path), Log(path)
    other = store.clone()
    other.set_timeout(SECOND / 50)
    with log.locked(SECOND):
        waiting = threading.Thread(target=store.set, args=("k", "v"))
        waiting.start()
        start = time.monotonic()
        with pytest.raises(DistStoreError, match=r"lock for 0.02 s"):
            other.set("k", "v")
        assert time.monotonic() - start < patient(2, start)
    log.close()
    waiting.join()
    assert other.get("k") == b"v"
