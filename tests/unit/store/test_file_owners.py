"""Whose file a FileStore trusts."""

import os
from types import SimpleNamespace

import pytest

from allhands import DistStoreError, FileStore
from allhands.store import ownership


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_not_trusted(path, mode):
    FileStore(path).set("k", "v")
    os.chmod(path, mode)
    message = rf"has mode {mode:04o}: others.*chmod go-w"
    with pytest.raises(DistStoreError, match=message):
        FileStore(path)
    os.chmod(path, 0o644)
    assert FileStore(path).get("k") == b"v"


def status_of(file, **changes):
    names = ("st_mode", "st_uid")
    return SimpleNamespace(**{name: getattr(file, name) for name in names} | changes)


def open_files():
    """Paths of what this process has open."""
    descriptors = os.listdir("/proc/self/fd")
    return [os.path.realpath(f"/proc/self/fd/{number}") for number in descriptors]


@pytest.fixture
def stranger(path, monkeypatch):
    """Lets the file at `path` belong to another user, whoever runs the test."""
    with open(path, "w"):
        pass
    inode = os.stat(path).st_ino
    uid = os.geteuid() + 1234
    fstat = os.fstat

    def fstat_of_a_stranger(file):
        status = fstat(file)
        return status_of(status, st_uid=uid) if status.st_ino == inode else status

    with monkeypatch.context() as patch:
        patch.setattr(ownership.os, "fstat", fstat_of_a_stranger)
        yield uid


def test_the_file_of_another_user_is_not_trusted(path, stranger):
    message = rf"belongs to user {stranger}, who.*a directory that only you can write"
    with pytest.raises(DistStoreError, match=message):
        FileStore(path)
    assert os.path.realpath(path) not in open_files()


@pytest.mark.parametrize(("owner", "is_trusted"), [(0, True), (1, False)])
def test_the_file_of_root_is_trusted(path, monkeypatch, owner, is_trusted):
    """Whoever this process runs as."""
    file = os.open(path, os.O_CREAT, 0o600)
    fstat = os.fstat

    def fstat_of_ours(descriptor):
        uid = owner if descriptor == file else 1234
        return status_of(fstat(descriptor), st_uid=uid)

    with monkeypatch.context() as patch:
        patch.setattr(ownership.os, "geteuid", lambda: 1234)
        patch.setattr(ownership.os, "fstat", fstat_of_ours)
        text = ownership.distrust(file, path)
    os.close(file)
    assert (text == "") == is_trusted


def test_a_server_may_give_all_our_files_to_one_user(path, monkeypatch):
    fstat = os.fstat
    uid = os.geteuid() + 1234
    with monkeypatch.context() as patch:
        patch.setattr(ownership.os, "fstat", lambda f: status_of(fstat(f), st_uid=uid))
        assert ownership.distrust(os.open(path, os.O_CREAT, 0o600), path) == ""


def test_what_is_no_regular_file_is_not_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(DistStoreError, match="is not a regular file"):
        FileStore(path)
