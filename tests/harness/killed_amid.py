"""A rank that is killed amid an all_reduce of large arrays."""

import signal
import textwrap
import time

from harness.ranks import Processes

_SOURCE = """
given = np.ones(16 << 20, np.float32)
dist.all_reduce(given)
say("ready")
try:
    while True:
        dist.all_reduce(given)
except dist.RankFailedError as error:
"""


def last_rank_killed_amid(hosts, then):
    """When the last rank was killed, and what each other rank gave.

    `hosts` has a character per rank. `then` is what a rank does with its `error`; its
    array is `given`.
    """
    victim = len(hosts) - 1
    source = _SOURCE + textwrap.indent(textwrap.dedent(then), "    ")
    with Processes(len(hosts), source, hosts=hosts) as processes:
        for rank in range(len(hosts)):
            assert processes.read(rank) == "ready"
        time.sleep(0.2)  # into the middle of it; any moment will do
        killed = time.monotonic()
        processes.ranks[victim].kill()
        *given, _ = processes.join(codes=[0] * victim + [-signal.SIGKILL])
    return killed, given
