"""ALLHANDS_FAULTS in jobs of the launcher."""

import pytest

from harness.launcher import environment, launch, program
from harness.ranks import Processes

TRAIN = """
import os
import numpy as np
import allhands as dist

dist.init_process_group()
x = np.ones(1)
for step in range(3):
    dist.all_reduce(x)
if dist.get_rank() == 0:
    print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], x[0])
"""


def run(tmp_path, faults, *options):
    path = program(tmp_path, TRAIN)
    given = ("--nproc-per-node=2", "--shutdown-timeout=1", *options)
    return launch(*given, path, env=environment(ALLHANDS_FAULTS=faults))


def test_a_rank_is_killed_in_the_first_attempt_alone(tmp_path):
    faults = "rank=1,op=all_reduce,nth=2,attempt=0,do=kill"
    done = run(tmp_path, faults, "--max-restarts=1")
    assert done.returncode == 0, done.stderr
    assert "attempt 1 8.0" in done.stdout
    told = "[rank1] faults: fault on demand: rank 1, all_reduce, call 2: do=kill\n"
    assert done.stderr.count(told) == 1
    assert "rank 1 failed: killed by SIGKILL" in done.stderr


def test_a_rank_exits_without_clean_up(tmp_path):
    text = 'import atexit\natexit.register(print, "cleaned up")\n' + TRAIN
    path = program(tmp_path, text)
    faults = environment(ALLHANDS_FAULTS="rank=1,op=all_reduce,nth=2,do=exit:7")
    done = launch("--nproc-per-node=2", "--shutdown-timeout=1", path, env=faults)
    assert done.returncode == 7
    assert "[rank1] cleaned up" not in done.stdout
    told = "[rank1] faults: fault on demand: rank 1, all_reduce, call 2: do=exit:7\n"
    assert told in done.stderr
    assert "allhands run: rank 1 failed: exit code 7" in done.stderr


def test_what_a_rank_raises_is_in_the_last_lines(tmp_path):
    done = run(tmp_path, "rank=1,op=all_reduce,do=raise", f"--dumps={tmp_path}/records")
    assert done.returncode == 1
    told = "InjectedError: fault on demand: rank 1, all_reduce, call 1: do=raise"
    last = done.stderr.splitlines()[-2]
    assert last.endswith(f"rank 1 raised {told} ({tmp_path}/train.py:9)")


def test_a_dropped_link_goes_on_where_it_was():
    """Ranks 0 and 2 are on one host, rank 1 on another one."""
    source = """
        x, text = np.ones(1 << 20), "rank=1,op=all_reduce,nth=2-,do=drop-link"
        with dist.debug.faults(text + ";rank=0,op=barrier,do=drop-link:1") as asked:
            for step in range(6):
                dist.all_reduce(x)
            dist.barrier()
        assert x[0] == x[-1] == 3.0**6
        for faults in ("drop-link:0", "drop-link:7") if rank == 2 else ():
            try:
                with dist.debug.faults(f"rank=2,do={faults}"):
                    pass
            except ValueError as error:
                say(error)
        give(asked.num_done)
    """
    with Processes(3, source, hosts=[0, 1, 0]) as ranks:
        told = [ranks.read(2) for _ in range(2)]
        done = ranks.join()
    assert done[1] > 0
    assert done[2] == 0
    assert "as rank 2 and rank 0 are on one host" in told[0]
    assert "names no rank of this world, which has [0-2]" in told[1]
    where = "[rank1] faults: fault on demand: rank 1, all_reduce, call 2: do=drop-link"
    assert where in ranks.stderr[1]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("op=store.set,nth=2", "store.set, call 2"),
        ("op=store.get,after=50ms", "store.get, call 1, after 0.05s"),
    ],
)
def test_a_rank_dies_at_or_in_a_request_to_a_store(tmp_path, fault, told):
    text = """
        import allhands as dist

        dist.init_process_group()
        store = dist.group.WORLD.get_group_store()
        if dist.get_rank() == 1:
            store.set("here", "1")
            store.set("ready", "1")
            store.get("what nobody sets")
        store.get("ready")
    """
    path = program(tmp_path, text)
    faults = environment(ALLHANDS_FAULTS=f"rank=1,{fault},do=kill")
    done = launch("-n2", "--shutdown-timeout=1", path, env=faults)
    assert done.returncode != 0
    assert f"fault on demand: rank 1, {told}: do=kill\n" in done.stderr
    assert "rank 1 failed: killed by SIGKILL" in done.stderr
