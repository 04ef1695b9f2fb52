"""How an attempt ends whose ranks could not all be started."""

import os
import signal
import threading
from types import SimpleNamespace

import pytest

from allhands.elastic.logs import Std
from allhands.elastic.node_ranks import NodeRanks
from allhands.elastic.output import RankOutput, Screen
from allhands.elastic.worker_group import WorkerGroup
from allhands.elastic.worker_spec import WorkerSpec
from harness.launcher import wait_until

PROGRAMS = ["sleep", "/no/such/program"]
SPEC = WorkerSpec(
    command=lambda local_rank: [PROGRAMS[local_rank], "999"],
    node_ranks=NodeRanks.alone(2),
    run_id="id",
    master_addr="::1",
    master_port=5,
    store_port=6,
)


@pytest.fixture
def console():
    """A pipe that nobody has read from so far, and a screen of more than it takes."""
    reading, writing = os.pipe()
    screen = Screen(writing, False)
    RankOutput(screen, 0, colour=False).feed(b"x\n" * 100_000)
    assert screen.is_clogged
    yield SimpleNamespace(screen=screen, reading=reading)
    os.close(reading)


def test_the_reason_is_told_though_the_console_is_clogged(console):
    before = num_open()
    group = WorkerGroup(SPEC, 0, {std: console.screen for std in (Std.OUT, Std.ERR)})
    sent = []

    def read():
        wait_until(lambda: group.workers and is_reaped(group.workers[0]), 60, "its end")
        group.workers[0].send = lambda *_, **__: sent.append("to a pid let go")
        while os.read(console.reading, 1 << 16):
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with pytest.raises(FileNotFoundError, match="/no/such/program"):
            group.run(None)
        assert num_open() == before
    finally:
        os.close(console.screen.fd)
        reader.join()
    assert group.workers[0].exit_code == -signal.SIGKILL
    group._kill()
    assert sent == []


def num_open():
    return len(os.listdir("/proc/self/fd"))


def is_reaped(worker):
    return not os.path.exists(f"/proc/{worker.pid}")
