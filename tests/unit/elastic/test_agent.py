"""What the launcher says when its job is over."""

import os
import signal
import threading

from allhands.elastic.agent import Agent
from allhands.elastic.logs import Std
from allhands.elastic.node_ranks import NodeRanks
from allhands.elastic.output import Screen
from allhands.elastic.signals import SignalPipe
from allhands.elastic.worker_spec import WorkerSpec

SPEC = WorkerSpec(
    command=lambda local_rank: ["true"],
    node_ranks=NodeRanks.alone(1),
    run_id="id",
    master_addr="::1",
    master_port=5,
    store_port=6,
)


def read_all(fd):
    return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))


def test_the_last_lines_wait_for_a_reader_until_a_signal_ends_that():
    reading, writing = os.pipe()
    signals, to_signals = os.pipe()
    os.set_blocking(signals, False)
    agent = Agent(SPEC, SignalPipe(signals))
    screen = Screen(writing, False)
    agent._screens = {Std.ERR: screen}
    lines = [f"line {number}" for number in range(50_000)]
    try:
        agent._say(lines)
        assert screen.is_clogged
        os.write(to_signals, bytes([signal.SIGUSR1, signal.SIGTERM]))
        agent._await_console()
        assert screen.is_clogged
        found = []
        reader = threading.Thread(target=lambda: found.append(read_all(reading)))
        reader.start()
        agent._await_console()
        assert not screen.is_clogged
    finally:
        os.close(writing)
    reader.join()
    assert found[0].decode().splitlines() == lines
    for fd in (reading, signals, to_signals):
        os.close(fd)
