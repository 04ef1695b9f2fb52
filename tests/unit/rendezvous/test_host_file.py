"""How ranks of one host meet by a file."""

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

import allhands as dist
from allhands import _C
from allhands.errors import DistStoreError
from allhands.rendezvous import host_file
from allhands.rendezvous.hosted import open_store
from allhands.rendezvous.identity import is_alive, process_identity

LONG = timedelta(seconds=60)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ALLHANDS_SECRET", "")
    monkeypatch.setattr(host_file, "_folder", lambda: tmp_path)
    monkeypatch.setattr(host_file, "_ports", {})
    monkeypatch.setattr(host_file, "_written", set())
    return tmp_path


def forget(monkeypatch):
    """Be another process."""
    monkeypatch.setattr(host_file, "_ports", {})
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
    host, _, start, _ = process_identity()
    path.write_text(json.dumps([host, ended.pid, start, 1, "secret"]))
    forget(monkeypatch)
    with pytest.raises(
        DistStoreError, match=rf"pid {ended.pid}, which was rank 0, has"
    ):
        host_file.meet_on_this_host("job", 1, 2, timedelta(seconds=0.2))
    host_file.meet_on_this_host("another", 0, 2, LONG)
    assert path not in folder.iterdir()


@pytest.mark.parametrize("text", ["", "[]", "[[[[", '["h", 1, 2, "x", 3]', "\0"])
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


def test_the_file_is_gone_once_the_world_is_complete(folder):
    """The next program of the same step meets by the same name."""
    store = host_file.meet_on_this_host("job", 0, 1, LONG)
    assert list(folder.iterdir())
    dist.init_process_group(store=store, rank=0, world_size=1)
    try:
        assert not list(folder.iterdir())
    finally:
        dist.destroy_process_group()


def test_what_another_process_has_written_is_not_withdrawn(folder):
    host_file.meet_on_this_host("job", 0, 2, LONG)
    [path] = folder.iterdir()
    host, pid, *others = json.loads(path.read_text())
    path.write_text(json.dumps([host, pid + 1, *others]))
    host_file.withdraw()
    assert path in folder.iterdir()


def test_a_dead_place_is_left_for_what_rank_0_writes_then(monkeypatch, folder):
    """Rank 0 of the program before lives, but its store serves no more."""
    monkeypatch.setattr(host_file, "_FIRST_TRY", timedelta(seconds=0.05), raising=False)
    host_file.meet_on_this_host("job", 0, 2, LONG)
    [path] = folder.iterdir()
    forget(monkeypatch)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        host_file._write(path, host_file._Place(unused.getsockname()[1], "old"))
        has_come, look_for, found = threading.Event(), host_file._look_for, []

        def look_once(*arguments):
            place = look_for(*arguments)
            has_come.set()
            return place

        def meet():
            limit = timedelta(seconds=10)
            found.append(host_file.meet_on_this_host("job", 1, 2, limit))

        monkeypatch.setattr(host_file, "_look_for", look_once)
        thread = threading.Thread(target=meet)
        thread.start()
        assert has_come.wait(60)
        os.environ["ALLHANDS_SECRET"] = "new"
        store = open_store("127.0.0.1", 0, 0, 2, LONG)
        host_file._write(path, host_file._Place(store.port, "new"))
        thread.join()
    assert found[0].port == store.port
    assert found[0].timeout == timedelta(seconds=10)


def test_the_file_of_another_host_is_none(monkeypatch, folder):
    """Containers that share the folder may have processes of the same number."""
    host_file.meet_on_this_host("job", 0, 2, LONG)
    [path] = folder.iterdir()
    forget(monkeypatch)
    host, *others = json.loads(path.read_text())
    path.write_text(json.dumps([f"{host}0", *others]))
    with pytest.raises(DistStoreError, match="rank 0, which did not come"):
        host_file.meet_on_this_host("job", 1, 2, timedelta(seconds=0.1))


def test_each_host_has_a_file_of_its_own(monkeypatch, folder):
    host_file.meet_on_this_host("job", 0, 2, LONG)
    _, *others = _C.process_identity()
    monkeypatch.setattr(_C, "process_identity", lambda: ("another", *others))
    forget(monkeypatch)
    host_file.meet_on_this_host("job", 0, 2, LONG)
    assert len(list(folder.iterdir())) == 2


def test_an_earlier_process_of_this_ones_number_has_ended():
    identity = process_identity()
    assert is_alive(identity)
    assert not is_alive(identity._replace(start=identity.start - 1))


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
