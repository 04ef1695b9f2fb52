"""Large messages between processes, which both copy from array to array."""

import signal
import sys
import time

import pytest

from harness.losses import check_death_is_named, check_stop_meets_the_limit
from harness.pace import patient
from harness.ranks import LIMIT, Processes
from harness.refusal import refuse

READ, WRITE = "process_vm_readv", "process_vm_writev"

PING_PONG = """
    peer = 1 - rank
    for count in (5_000, 8_192, 8_193, 100_003, 3_000_001):
        for turn in range(6):
            mine = np.arange(count, dtype=np.float32) + turn + rank
            theirs = np.zeros_like(mine)
            if (turn + rank) % 2:
                dist.send(mine, peer)
                dist.recv(theirs, peer)
            else:
                works = [dist.irecv(theirs, peer), dist.isend(mine, peer)]
                assert all(work.wait() for work in works)
            expected = np.arange(count, dtype=np.float32) + turn + peer
            np.testing.assert_array_equal(theirs, expected)
    strided = np.zeros((2_000_000, 2), dtype=np.uint8)
    if rank == 0:
        strided[:, 1] = np.arange(2_000_000) % 251
        dist.send(strided[:, 1], 1)
    else:
        dist.recv(strided[:, 0], 0)
        assert (strided[:, 0] == np.arange(2_000_000) % 251).all()
        assert not strided[:, 1].any()
    give("right")
    dist.destroy_process_group()
"""

FLOW = """
    x = np.zeros({count})
    try:
        with dist.debug.faults("rank={lost},nth=3,after={after},do={do}"):
            for turn in range(10**9):
                if turn == 2:
                    give(time.monotonic())
                if rank == 0:
                    dist.send(x, 1, timeout=timedelta(seconds={timeout}))
                else:
                    dist.recv(x, 0, timeout=timedelta(seconds={timeout}))
    except dist.DistError as error:
        give((time.monotonic(), type(error).__name__, error.ranks))
        os._exit(0)
"""

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")


def test_what_is_sent_arrives():
    with Processes(2, PING_PONG) as ranks:
        assert ranks.join() == ["right", "right"]


@LINUX
@pytest.mark.parametrize(
    "refused",
    [[(READ, 0)], [(WRITE, 0)], [(WRITE, 1)], [(READ, 1), (WRITE, 0), (WRITE, 1)]],
    ids=lambda refused: "+".join(f"{call}_of_{rank}" for call, rank in refused),
)
def test_what_is_sent_arrives_where_the_kernel_refuses(refused):
    source = "".join(refuse(call, rank) for call, rank in refused) + PING_PONG
    with Processes(2, source) as ranks:
        assert ranks.join() == ["right", "right"]


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("after", ["0ms", "3.7ms"])  # any moment will do
def test_a_rank_that_dies_is_named_within_a_second(dead, after):
    flow = FLOW.format(count=4 << 20, timeout=LIMIT, lost=dead, after=after, do="kill")
    with Processes(2, flow) as job:
        check_death_is_named(job, dead)


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_rank_that_is_stopped_runs_into_the_others_timeout(stopped):
    # A message that takes a small part of the limit, however slow the machine is.
    flow = FLOW.format(count=1 << 19, timeout=3, lost=stopped, after="1ms", do="stop")
    with Processes(2, flow) as job:
        check_stop_meets_the_limit(job, stopped, 3)


@pytest.mark.parametrize("interrupted", [0, 1])
def test_ctrl_c_acts_within_half_a_second(interrupted):
    source = """
        x = np.full(8 << 20, float(rank))
        say("ready")
        first = True
        for turn in range(10**9):
            try:
                if rank == 0:
                    dist.send(x, 1, tag=turn)
                else:
                    dist.recv(x, 0, tag=turn)
                if first:
                    say("under way")
                    first = False
            except KeyboardInterrupt:
                give(time.monotonic())
                os._exit(0)
            except dist.DistError:
                os._exit(0)
    """
    with Processes(2, source) as job:
        for rank in range(2):
            assert job.read(rank) == "ready"
            assert job.read(rank) == "under way"
        job.ranks[interrupted].send_signal(signal.SIGINT)
        pressed = time.monotonic()
        acted = job.join()[interrupted]
    assert acted - pressed < patient(0.5, pressed)
