"""One program under every launcher: it says the same, however it was started."""

import importlib.util
import subprocess
import sys

import pytest

from harness import mpi_jobs
from harness.fake_hosts import fake_hosts
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
    """As where mpiexec has several hosts, and PMI is not there or not wanted."""
    variables = {"MPI_LOCALNRANKS": "", "OMPI_COMM_WORLD_LOCAL_SIZE": ""}
    text = f"""
import os, runpy, sys
os.environ.update({variables})
runpy.run_path(sys.argv[1])
assert "mpi4py.MPI" in sys.modules
"""
    folder = mpi_jobs.find(name)
    job = mpi_jobs.run(folder, 2, "-c", text, path, ALLHANDS_PMI="no")
    assert lines(job) == [line.replace("'2'", "'1'") for line in expected(2)]


BY_PMI = """
    import os, sys
    import numpy as np
    import allhands as dist

    if "first" in sys.argv:
        from mpi4py import MPI

    def show(total):
        place = f"{os.uname().nodename}, rank {dist.get_rank()}"
        print(f"{place}, local {os.environ['LOCAL_RANK']}: {total[0]:g}")

    for world in range(2):
        dist.init_process_group()
        total = np.ones(1)
        dist.all_reduce(total)
        show(total)
        if world == 1 and "mpi" in sys.argv:
            # In the same processes, which have spoken PMI.
            from mpi4py import MPI
            show([MPI.COMM_WORLD.allreduce(10)])
        uses_mpi = "first" in sys.argv or (world == 1 and "mpi" in sys.argv)
        assert ("mpi4py.MPI" in sys.modules) == uses_mpi
        assert len(os.environ["ALLHANDS_SECRET"]) == 64
        dist.barrier()
        dist.destroy_process_group()
    if "early" in sys.argv and int(os.environ["RANK"]) == 1:
        sys.exit()
    if "early" in sys.argv:
        os.waitid(os.P_PID, os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1"), os.WEXITED)
        print("lives")
"""


@pytest.fixture(scope="module")
def two_hosts():
    with fake_hosts(2) as hosts:
        yield hosts


@pytest.mark.parametrize("use", ["", "mpi", "first", "early"])
def test_ranks_on_hosts_meet_by_pmi(two_hosts, tmp_path, use):
    """MPI may begin afterwards, or before, and a rank may end before the others."""
    folder, path = mpi_jobs.find("MPICH"), program(tmp_path, BY_PMI)
    done = mpi_jobs.run_on(two_hosts, folder, 4, path, use)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    sums = [4, 4] + [40] * (use == "mpi")
    expected = [
        f"host{rank // 2}, rank {rank}, local {rank % 2}: {total}"
        for rank in range(4)
        for total in sums
    ]
    told = sorted(done.stdout.splitlines())
    assert told == expected + ["lives"] * 3 * (use == "early")
