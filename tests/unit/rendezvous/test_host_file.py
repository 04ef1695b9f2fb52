"""How ranks of one host meet by a file."""

import json
import os
import stat
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from allhands.errors import DistStoreError
from allhands.rendezvous import host_file
from allhands.rendezvous.identity import process_identity

LONG = timedelta(seconds=60)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ALLHANDS_SECRET", "")
    monkeypatch.setattr(host_file, "_folder", lambda: tmp_path)
    monkeypatch.setattr(host_file, "_places", {})
    return tmp_path


def forget(monkeypatch):
    """Be another process."""
    monkeypatch.setattr(host_file, "_places", {})
    monkeypatch.setenv("ALLHANDS_SECRET", "")


def test_the_others_learn_port_and_secret(monkeypatch, folder):
    store = host_file.meet_on_this_host("job", 0, 2, LONG)
    secret = os.environ["ALLHANDS_SECRET"]
    assert len(secret) == 64
    [path] = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    forget(monkeypatch)
    other = host_file.meet_on_this_host("job", 1, 2, LONG)
    assert os.environ["ALLHANDS_SECRET"] == secret
    store.set("k", "v")
    assert other.get("k") == b"v"


def test_a_later_world_meets_at_the_same_port(folder):
    before = host_file.meet_on_this_host("job", 0, 2, LONG)
    [path] = folder.iterdir()
    path.unlink()
    another = host_file.meet_on_this_host("another", 0, 2, LONG)
    port = before.port
    assert another.port != port
    del before
    host = host_file.meet_on_this_host("job", 0, 2, LONG)
    other = host_file.meet_on_this_host("job", 1, 2, LONG)
    assert (host.port, other.port) == (port, port)


def test_what_an_ended_rank_0_has_left_is_not_believed_and_removed(monkeypatch, folder):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = host_file.meet_on_this_host("job", 0, 2, LONG)
    [path] = folder.iterdir()
    del store
    gone = process_identity()._replace(pid=ended.pid)
    path.write_text(json.dumps([*gone, 1, "secret"]))
    forget(monkeypatch)
    with pytest.raises(
        DistStoreError, match=rf"pid {ended.pid}, which was rank 0, has"
    ):
        host_file.meet_on_this_host("job", 1, 2, timedelta(seconds=0.2))
    host_file.meet_on_this_host("another", 0, 2, LONG)
    assert path not in folder.iterdir()


@pytest.mark.parametrize("text", ["", "[]", "[[[[", '["h", 1, 2, "", "x", 3]', "\0"])
def test_what_no_rank_writes_is_nothing(folder, text):
    host_file.meet_on_this_host("job", 0, 2, LONG)
    [path] = folder.iterdir()
    path.write_text(text)
    assert host_file._read(path) is None


def test_a_rank_that_comes_before_rank_0_waits_for_it():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(host_file.meet_on_this_host("job", 1, 2, LONG))
    )
    thread.start()
    store = host_file.meet_on_this_host("job", 0, 2, LONG)
    thread.join()
    assert found[0].port == store.port


def test_a_folder_that_others_can_enter_is_refused(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr(host_file.os, "access", lambda *_: False)
    monkeypatch.setattr(host_file.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = host_file._folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    with pytest.raises(
        DistStoreError, match=r"not a folder of this user's alone.*MAST"
    ):
        host_file._folder()
