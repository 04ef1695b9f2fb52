"""What a rank's process is sent."""

import os
import signal
import subprocess

from allhands.elastic.logs import Std
from allhands.elastic.node_ranks import NodeRanks
from allhands.elastic.output import Screen
from allhands.elastic.worker import Worker
from allhands.elastic.worker_spec import WorkerSpec
from harness.ranks import LIMIT

SPEC = WorkerSpec(
    command=lambda local_rank: ["sleep", "999"],
    node_ranks=NodeRanks.alone(1),
    run_id="id",
    master_addr="::1",
    master_port=5,
    store_port=6,
)


def test_a_signal_reaches_a_rank_that_has_no_group_of_its_own_yet():
    screen = Screen(os.open(os.devnull, os.O_WRONLY), False)
    started = []

    def start(program):
        started.append(subprocess.Popen(program.command))
        return started[0]

    worker = Worker(SPEC, 0, 0, "mark", {Std.OUT: screen, Std.ERR: screen}, start)
    try:
        worker.send(signal.SIGTERM, to_group=True)
        assert started[0].wait(LIMIT) == -signal.SIGTERM
    finally:
        started[0].kill()
        started[0].wait()
        worker.close_streams()
        os.close(screen.fd)
