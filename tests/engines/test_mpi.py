"""Backend mpi in jobs of the real mpiexec, of MPICH and of Open MPI."""

import pathlib
import subprocess
import sys

import pytest

from harness import contract, mpi_jobs
from harness.documents import ROOT, read, unlike
from harness.launcher import launch, program

HERE = pathlib.Path(__file__).parent
SUITES = [
    HERE.parent / "contract" / "test_communicator.py",
    HERE / "random_cases.py",
    HERE / "library_cases.py",
    HERE / "mpi_cases.py",
]
TUTORIAL = """
import numpy as np
import allhands as dist

dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()
array = np.full(1, float(rank))
dist.all_reduce(array)
group = dist.new_group([0, size - 1])
if rank in (0, size - 1):
    dist.all_reduce(array, group=group)
tensor = np.zeros(1)
if rank == 0:
    tensor += 1
    dist.send(tensor=tensor, dst=1)
elif rank == 1:
    dist.recv(tensor=tensor, src=0)
print(f"rank {rank} of {size}: {array[0]} {tensor[0]} {dist.get_backend()}")
"""


@pytest.fixture(params=mpi_jobs.FOLDERS)
def folder(request):
    return mpi_jobs.find(request.param)


def test_the_suites_of_every_communicator(folder):
    """One job, in which each process is a rank that runs them all."""
    job = mpi_jobs.run(
        folder,
        3,
        *("-m", "pytest", "-q", "-p", "harness.mpi_ranks", "-p", "no:cacheprovider"),
        "--color=no",  # the mpiexec of Open MPI lends its ranks a terminal
        *map(str, SUITES),
        PYTHONPATH=str(HERE.parent),
    )
    assert job.returncode == 0, f"{job.stdout[-8000:]}\n{job.stderr[-2000:]}"
    assert job.stdout.count(" passed") == 3
    assert " failed" not in job.stdout
    assert contract.skips(job.stdout) == contract.reasons(*contract.UNDER_TEST, "mpi")


def test_the_tutorial_needs_no_address_and_no_launcher_of_ours(folder, tmp_path):
    job = mpi_jobs.run(folder, 4, program(tmp_path, TUTORIAL))
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.split("\n"))[1:] == [
        "rank 0 of 4: 12.0 1.0 mpi",
        "rank 1 of 4: 6.0 1.0 mpi",
        "rank 2 of 4: 6.0 0.0 mpi",
        "rank 3 of 4: 12.0 0.0 mpi",
    ]


@pytest.mark.parametrize(
    "name", ["matvec.py", "mandelbrot.py", "counter.py", "rows.py", "halo.py"]
)
def test_the_programs_for_people_who_come_from_mpi4py(folder, name, tmp_path):
    page = read(ROOT / "docs" / "coming-from-mpi4py.md")
    text = page.programs()[name]
    assert text.count("init_process_group()") == 1
    path = program(tmp_path, text.replace("group()", 'group("mpi")', 1))
    [shown] = [each for each in page.commands() if each.line.endswith(f" {name}")]
    words = shown.line.split()
    num_ranks = int(words[words.index("--nproc-per-node") + 1])
    job = mpi_jobs.run(folder, num_ranks, path, cwd=tmp_path)
    assert job.returncode == 0, job.stderr
    said = [line.partition("] ")[2] for line in shown.output]
    assert unlike(said, job.stdout.splitlines()) == ([], [])


def test_an_exception_on_one_rank_ends_the_job(folder, tmp_path):
    job = mpi_jobs.run(
        folder,
        3,
        program(
            tmp_path,
            """
            import numpy as np
            import allhands as dist

            dist.init_process_group("mpi")
            dist.barrier()
            if dist.get_rank() == 1:
                raise ArithmeticError("rank 1 cannot count")
            dist.all_reduce(np.ones(1))
            """,
        ),
    )
    assert job.returncode != 0
    assert "ArithmeticError: rank 1 cannot count" in job.stderr


def test_a_program_of_one_rank_needs_no_mpiexec(tmp_path):
    mpi_jobs.find("MPICH")
    text = """
    import numpy as np
    import allhands as dist

    dist.init_process_group("mpi")
    array = np.ones(1)
    dist.all_reduce(array)
    print(dist.get_world_size(), array, dist.get_backend())
    """
    job = subprocess.run(
        [sys.executable, program(tmp_path, text)],
        capture_output=True,
        text=True,
        timeout=mpi_jobs.LIMIT,
    )
    assert job.stdout == "1 [1.] mpi\n", job.stderr


def test_under_another_launcher_the_error_says_how_to_start(tmp_path):
    job = launch("--nproc-per-node", "2", program(tmp_path, TUTORIAL))
    assert job.returncode != 0
    assert "mpiexec -n 2 python program.py" in job.stderr
    assert "`allhands run` started" in job.stderr
