"""ALLHANDS_FAULTS in jobs of the launcher."""

from harness.launcher import environment, launch, program

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
    told = "allhands: fault on demand: rank 1, all_reduce, call 2: do=kill\n"
    assert done.stderr.count(told) == 1
    assert "rank 1 failed: killed by SIGKILL" in done.stderr


def test_what_a_rank_raises_is_in_the_last_lines(tmp_path):
    done = run(tmp_path, "rank=1,op=all_reduce,do=raise", f"--dumps={tmp_path}/records")
    assert done.returncode == 1
    told = "InjectedError: fault on demand: rank 1, all_reduce, call 1: do=raise"
    last = done.stderr.splitlines()[-2]
    assert last.endswith(f"rank 1 raised {told} ({tmp_path}/train.py:9)")
