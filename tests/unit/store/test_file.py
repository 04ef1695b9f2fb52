"""The life of a FileStore's file."""

import datetime
import gc
import os
import re
import threading
import time

import pytest

from allhands import DistStoreError, FileStore
from allhands.store.log import Log
from harness.pace import patient

SECOND = datetime.timedelta(seconds=1)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store")


def test_path(path):
    assert FileStore(path).path == path


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
    with store._transaction():
        gc.collect()  # to leave now would be to wait for the lock that we have
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
