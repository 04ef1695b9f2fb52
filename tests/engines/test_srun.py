"""One program under a real Slurm's srun, on hosts with 4, 1 and 1 of its tasks."""

import sys

import pytest

from harness.launcher import program
from harness.nodes import run_nodes
from harness.slurm import slurm_cluster

TASKS = [4, 1, 1]
PROGRAM = """
    import os
    import numpy as np
    import allhands as dist

    early = dist.get_node_local_rank()
    for world in range(2):
        dist.init_process_group()
        rank, size = dist.get_rank(), dist.get_world_size()
        total = np.full(2, rank + 1.0)
        dist.all_reduce(total)
        names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
        told = [os.environ[name] for name in names]
        dist.destroy_process_group()
        place = f"{os.uname().nodename}, rank {rank} of {size}, {told}, {early}"
        os.write(1, f"{world}: {place}, sum {total[0]:g}\\n".encode())
"""


@pytest.fixture(scope="module")
def slurm():
    with slurm_cluster(len(TASKS)) as cluster:
        yield cluster


def expected():
    return [
        f"{world}: host{host}, rank {rank} of 6, "
        f"{[str(rank), '6', str(local), str(TASKS[host])]}, {local}, sum 21"
        for world in range(2)
        for rank, (host, local) in enumerate(
            (host, local) for host, count in enumerate(TASKS) for local in range(count)
        )
    ]


def srun(slurm, *command, **variables):
    return slurm.call("srun", "-N3", "-n6", *command, **variables)


def lines(text):
    return sorted(line.partition("] ")[2] or line for line in text.splitlines())


def test_it_says_the_same_as_under_our_launcher(slurm, tmp_path):
    path = program(tmp_path, PROGRAM)
    done = srun(slurm, sys.executable, path, ALLHANDS_SECRET="of the job")
    assert (done.returncode, lines(done.stdout)) == (0, expected()), done.stderr
    assert "allhands" not in done.stderr
    ended = run_nodes(TASKS, path, hosts=slurm.hosts)
    assert [(end.code, end.stderr) for end in ended] == [(0, "")] * len(TASKS)
    assert lines("".join(end.stdout for end in ended)) == expected()


def test_steps_of_one_job_that_run_at_a_time_do_not_meet(slurm, tmp_path):
    path = program(tmp_path, PROGRAM)
    step = f"srun --overlap {sys.executable} {path}"
    steps = f"{step} & {step} && wait $!"
    done = slurm.call(
        *("salloc", "-N3", "-n6", "sh", "-c", steps), ALLHANDS_SECRET="of the job"
    )
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == sorted(2 * expected())


def test_that_there_is_no_secret_is_said_once(slurm, tmp_path):
    done = srun(slurm, sys.executable, program(tmp_path, PROGRAM))
    assert (done.returncode, lines(done.stdout)) == (0, expected()), done.stderr
    assert done.stderr.count("srun carries no secret: whoever reaches host0:") == 1
    assert done.stderr.count("by srun --mpi=pmi2 and set ALLHANDS_PMI=yes") == 1


def test_pmi_carries_place_and_secret(slurm, tmp_path):
    path = program(tmp_path, PROGRAM)
    done = srun(slurm, "--mpi=pmi2", sys.executable, path, ALLHANDS_PMI="yes")
    assert (done.returncode, lines(done.stdout)) == (0, expected()), done.stderr
    assert "allhands" not in done.stderr


def test_pmi_is_left_to_mpi(slurm, tmp_path):
    """Slurm's lets nobody begin after this package, so it takes a user's word."""
    done = srun(slurm, "--mpi=pmi2", sys.executable, program(tmp_path, PROGRAM))
    assert (done.returncode, lines(done.stdout)) == (0, expected()), done.stderr
    assert done.stderr.count("srun carries no secret") == 1
