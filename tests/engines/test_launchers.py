"""One program under every launcher: it says the same, however it was started."""

import importlib.util
import subprocess
import sys

import pytest

from harness import mpi_jobs
from harness.launcher import environment, launch, program

PROGRAM = """
    import os
    import numpy as np
    import allhands as dist

    early = dist.get_node_local_rank(0)
    for world in range(2):
        dist.init_process_group()
        rank, size = dist.get_rank(), dist.get_world_size()
        total, sizes = np.full(2, rank + 1.0), [None] * size
        dist.all_reduce(total)
        late = dist.get_node_local_rank(0)
        dist.all_gather_object(sizes, os.environ.get("LOCAL_WORLD_SIZE", "1"))
        locals = [None] * size
        dist.all_gather_object(locals, late)
        is_right = sorted(locals) == list(range(size)) and early == late
        dist.destroy_process_group()
        line = f"{world}: {rank} of {size}, sum {total[0]:g}, {set(sizes)}, {is_right}"
        os.write(1, f"{line}\\n".encode())
"""


def expected(size):
    total = size * (size + 1) // 2
    return [
        f"{world}: {rank} of {size}, sum {total}, {{'{size}'}}, True"
        for world in range(2)
        for rank in range(size)
    ]


@pytest.fixture
def path(tmp_path):
    return program(tmp_path, PROGRAM)


def lines(done):
    assert done.returncode == 0, done.stderr
    assert "allhands" not in done.stderr
    return sorted(line.partition("] ")[2] or line for line in done.stdout.splitlines())


def test_python_alone(path):
    done = subprocess.run(
        [sys.executable, path],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=mpi_jobs.LIMIT,
    )
    assert lines(done) == expected(1)


def test_our_launcher(path):
    assert lines(launch("-n", "3", path)) == expected(3)


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not here")
def test_torchrun(path):
    done = launch("--nproc-per-node=3", path, module="torch.distributed.run")
    assert lines(done) == expected(3)


@pytest.mark.parametrize("name", mpi_jobs.FOLDERS)
def test_mpiexec(name, path):
    assert lines(mpi_jobs.run(mpi_jobs.find(name), 3, path)) == expected(3)


@pytest.mark.parametrize("name", mpi_jobs.FOLDERS)
def test_mpiexec_of_shells(name, path):
    """Ranks know their job though a process is between them and mpiexec."""
    folder = mpi_jobs.find(name)
    text = """
import subprocess, sys
sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))
"""
    assert lines(mpi_jobs.run(folder, 2, "-c", text, path)) == expected(2)


@pytest.mark.parametrize("name", mpi_jobs.FOLDERS)
def test_ranks_that_take_each_other_for_distant_meet_by_mpi(name, path):
    """As where mpiexec has several hosts."""
    variables = {"MPI_LOCALNRANKS": "", "OMPI_COMM_WORLD_LOCAL_SIZE": ""}
    text = f"""
import os, runpy, sys
os.environ.update({variables})
runpy.run_path(sys.argv[1])
"""
    job = mpi_jobs.run(mpi_jobs.find(name), 2, "-c", text, path)
    assert lines(job) == [line.replace("'2'", "'1'") for line in expected(2)]
