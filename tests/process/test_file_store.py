"""FileStore between processes: counting, dying, forking."""

import os
import subprocess
import sys

import pytest

from allhands import FileStore
from harness.ranks import LIMIT


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store")


def start(path, body, *arguments):
    """A process that runs `body` with `store` open on `path` for 2 users."""
    lines = [
        "import os, signal, sys, allhands",
        f"store = allhands.FileStore({path!r}, 2)",
        body,
    ]
    program = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.Popen([*program, *map(str, arguments)])


def test_processes_add_and_lose_nothing(path):
    work = "for _ in range(200): store.add('n', 1)"
    keeper = FileStore(path)
    workers = [start(path, work) for _ in range(3)]
    assert [worker.wait(LIMIT) for worker in workers] == [0] * 3
    assert keeper.add("n", 0) == 600


def test_the_last_process_removes_the_file_at_its_exit(path):
    work = "store.barrier('all', 2)"
    workers = [start(path, work) for _ in range(2)]
    assert [worker.wait(LIMIT) for worker in workers] == [0, 0]
    assert not os.path.exists(path)


def test_a_job_that_was_killed_leaves_no_stale_keys(path):
    work = "store.set('stale', 'v'); os.kill(os.getpid(), signal.SIGKILL)"
    assert start(path, work).wait(LIMIT) == -9
    assert os.path.getsize(path) > 0
    store = FileStore(path, 1)
    assert store.list_keys() == []
    del store
    assert not os.path.exists(path)


def test_the_file_of_a_killed_peer_is_removed_by_the_survivor(path):
    store = FileStore(path, 2)
    work = "store.set('k', 'v'); os.kill(os.getpid(), signal.SIGKILL)"
    assert start(path, work).wait(LIMIT) == -9
    assert store.get("k") == b"v"
    del store
    assert not os.path.exists(path)


def test_two_processes_meet_100_times_in_one_file(path):
    """Without a barrier at the end: one may come again before the other has left."""
    work = """
rank, path = int(sys.argv[1]), store.path
for meeting in range(100):
    if meeting:
        store = allhands.FileStore(path, 2)
    incarnation = store.add(f"join/{rank}", 1)
    store.set(f"here/{rank}/{incarnation}", "v")
    store.wait([f"here/{1 - rank}/{incarnation}"])
    del store
"""
    workers = [start(path, work, rank) for rank in (0, 1)]
    assert [worker.wait(LIMIT) for worker in workers] == [0, 0]
    assert not os.path.exists(path)


def test_a_forked_child_goes_on_using_it(path):
    work = """
store.set("parent", "v")
child = os.fork()
if child == 0:
    assert store.get("parent") == b"v"
    for _ in range(200):
        store.add("n", 1)
    store.set("child", "v")
    sys.exit(0)
for _ in range(200):
    store.add("n", 1)
assert store.get("child") == b"v"
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert store.add("n", 0) == 400
"""
    keeper = FileStore(path)
    assert start(path, work).wait(LIMIT) == 0
    assert keeper.add("n", 0) == 400
