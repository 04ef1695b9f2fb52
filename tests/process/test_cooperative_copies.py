"""Large collectives that go to one rank, which both sides copy."""

import signal
import sys
import time

import pytest

from harness.losses import check_death_is_named, check_stop_meets_the_limit
from harness.pace import patient
from harness.ranks import Processes
from harness.refusal import refuse

READ, WRITE = "process_vm_readv", "process_vm_writev"

# Rank 0 is the sender of both.
CALLS = {
    "broadcast": "dist.broadcast(x, 0, group, timeout=limit)",
    "gather": "dist.gather(x, [y, x] if rank == 1 else None, 1, group, timeout=limit)",
}

PRELUDE = """
    group, limit = dist.group.WORLD, None
    dist.barrier()
    y = np.zeros(4 << 20)
    x = np.full(4 << 20, float(rank))
"""

FLOW = """
    try:
        with dist.debug.faults("{faults}"):
            for turn in range(10**9):
                if turn == 2:
                    give(time.monotonic())
                {call}
                if turn == 1:
                    say("under way")
    except (KeyboardInterrupt, dist.DistError) as error:
        give((time.monotonic(), type(error).__name__, getattr(error, "ranks", None)))
        os._exit(0)
"""


def flow(operation, faults=""):
    return PRELUDE + FLOW.format(call=CALLS[operation], faults=faults)


pytestmark = pytest.mark.parametrize("operation", CALLS)


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
@pytest.mark.parametrize(
    "refused", [[(WRITE, 0)], [(WRITE, 0), (WRITE, 1)], [(READ, 1)]]
)
def test_what_is_sent_arrives_where_the_kernel_refuses(operation, refused):
    calls = "".join(refuse(call, rank) for call, rank in refused)
    source = (
        calls
        + PRELUDE
        + f"""
    for turn in range(1, 5):
        x[:], y[:] = rank + turn, -1
        {CALLS[operation]}
        if rank == 1:
            assert (({{"broadcast": x, "gather": y}}["{operation}"]) == turn).all()
    give("right")
"""
    )
    with Processes(2, source) as ranks:
        assert ranks.join() == ["right", "right"]


# Whoever gives up may use its array at once: nobody writes to it, nor takes what it
# writes there for what it sent.
def test_arrays_are_their_owners_once_a_call_has_raised(operation, monkeypatch):
    monkeypatch.setenv("ALLHANDS_TUNING", "slice_bytes=64M")
    source = f"""
    import random, threading
    {PRELUDE}
    raised = 0
    for turn in range(30):
        group = dist.new_group([0, 1])
        {CALLS[operation]}  # it finds out that memory can be read
        abort = threading.Timer(random.random() * 0.02, group.abort)
        if turn % 2 == rank:
            abort.start()
        try:
            while True:
                x[:: 1 << 12], y[:: 1 << 12] = rank, -1
                {CALLS[operation]}
                if rank == 1:
                    got = {{"broadcast": x, "gather": y}}["{operation}"]
                    assert (got[:: 1 << 12] == 0).all()
        except dist.DistError:
            x[:: 1 << 12] = y[:: 1 << 12] = 7
        dist.barrier()
        assert (x[:: 1 << 12] == 7).all() and (y[:: 1 << 12] == 7).all()
    give("right")
    """
    with Processes(2, source) as ranks:
        assert ranks.join() == ["right", "right"]


@pytest.mark.parametrize("dead", [0, 1])
def test_a_rank_that_dies_is_named_within_a_second(operation, dead):
    source = flow(operation, f"rank={dead},nth=3,after=3ms,do=kill")
    with Processes(2, source) as job:
        check_death_is_named(job, dead)


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_rank_that_is_stopped_runs_into_the_others_timeout(operation, stopped):
    source = flow(operation, f"rank={stopped},nth=3,after=3ms,do=stop")
    source = source.replace("None", "timedelta(seconds=3)", 1)
    with Processes(2, source) as job:
        check_stop_meets_the_limit(job, stopped, 3)


@pytest.mark.parametrize("interrupted", [0, 1])
def test_ctrl_c_acts_within_half_a_second(operation, interrupted):
    with Processes(2, flow(operation)) as job:
        for rank in range(2):
            assert job.read(rank) == "under way"
        job.ranks[interrupted].send_signal(signal.SIGINT)
        pressed = time.monotonic()
        acted, name, _ = job.join()[interrupted]
    assert name == "KeyboardInterrupt"
    assert acted - pressed < patient(0.5, pressed)
