"""Backend mpi in jobs of the real mpiexec, of MPICH and of Open MPI."""

import pathlib
import subprocess
import sys

import pytest

from harness import contract, mpi_jobs, mpi_programs
from harness.launcher import environment, launch, program

HERE = pathlib.Path(__file__).parent
SUITES = [
    HERE.parent / "contract" / "test_communicator.py",
    HERE / "random_cases.py",
    HERE / "library_cases.py",
    HERE / "mpi_cases.py",
]
UNIT = HERE.parent / "unit"
VOCABULARY = [
    *(UNIT / "ops" / f"test_{name}.py" for name in ("uneven", "waits", "status")),
    *(UNIT / "ops" / f"test_{name}.py" for name in ("locations", "object_reductions")),
    UNIT / "device_mesh" / "test_shift.py",
    UNIT / "groups" / "test_split_by_color.py",
]
"""What MPI has and torch.distributed has not, with random sizes and dtypes."""
LEFT_OUT = {
    "MPI does not compare what ranks call": ["a_size_on_which_two_ranks_differ"],
    "the sender of a message that does not fit gets no error": ["does_not_fit"],
    "the errors have another text": ["a_probe_whose_time_is_over", "who_left_ends"],
    "a rank that waits for itself waits until its limit": ["messages_to_oneself"],
    "MPICH has no tag 2**31 - 1": ["what_the_package_sends_itself"],
    "the ranks of the test are processes of its own": ["a_peer_that_dies_ends"],
    "the test looks into the memory of another rank": ["only_one_rank_calls"],
}
TUTORIAL = """
import os
import numpy as np
import allhands as dist

os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29500"
dist.init_process_group("mpi", rank=0, world_size=0)
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


def run_suites(folder, paths, *options):
    """Tests in one job, in which each process is a rank that runs all of them."""
    job = mpi_jobs.run(
        folder,
        3,
        *("-m", "pytest", "-q", "-p", "harness.mpi_ranks", "-p", "no:cacheprovider"),
        "--color=no",  # the mpiexec of Open MPI lends its ranks a terminal
        *options,
        *map(str, paths),
        PYTHONPATH=str(HERE.parent),
    )
    assert job.returncode == 0, contract.told(job)
    assert job.stdout.count(" passed") == 3
    assert " failed" not in job.stdout
    return job


def test_the_suites_of_every_communicator(folder):
    job = run_suites(folder, SUITES)
    assert contract.skips(job.stdout) == contract.reasons(*contract.IN_JOBS, "mpi")


def test_the_vocabulary_of_mpi(folder):
    """Its tests for the native engine, on ranks that are processes of MPI's."""
    names = [name for each in LEFT_OUT.values() for name in each]
    job = run_suites(folder, VOCABULARY, "-k", f"not ({' or '.join(names)})")
    for line in job.stdout.splitlines():
        assert "skipped" not in line


def test_the_tutorial_needs_no_address_and_no_launcher_of_ours(folder, tmp_path):
    job = mpi_jobs.run(folder, 4, program(tmp_path, TUTORIAL))
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.split("\n"))[1:] == [
        "rank 0 of 4: 12.0 1.0 mpi",
        "rank 1 of 4: 6.0 1.0 mpi",
        "rank 2 of 4: 6.0 0.0 mpi",
        "rank 3 of 4: 12.0 0.0 mpi",
    ]
    for told in ("rank=0 is ignored, because MPI says 3", "world_size=0 is ignored"):
        assert told in job.stderr


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("name", mpi_programs.NAMES)
def test_the_programs_for_people_who_come_from_mpi4py(
    folder, name, num_ranks, tmp_path
):
    path = program(tmp_path, mpi_programs.text(name, "mpi"), name)
    job = mpi_jobs.run(folder, num_ranks, path, cwd=tmp_path)
    assert job.returncode == 0, job.stderr
    lines = mpi_programs.lines_of(name, job.stdout.splitlines())
    assert lines == mpi_programs.printed(name, num_ranks)


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


def test_the_others_outlive_a_rank_where_mpi_does(tmp_path):
    text = """
    import os, signal
    from functools import partial
    import numpy as np
    import allhands as dist

    dist.init_process_group("mpi")
    rank, array = dist.get_rank(), np.ones(2)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for use in ("from it", "from any", "from any", "all", "all"):
        try:
            if use == "all":
                dist.all_reduce(array)
            else:
                dist.recv(array, 1 if use == "from it" else None)
        except dist.RankFailedError as error:
            assert error.ranks == [1], error.ranks
            assert "needs rank 1, which died" in str(error), str(error)
        else:
            raise AssertionError(use)
        if use == "from any":  # which does not break the group
            tell = {0: partial(dist.send, dst=2), 2: partial(dist.recv, src=0)}
            tell[rank](array, tag=1)
    group = dist.shrink_group([1])
    ones = np.ones(2)
    dist.all_reduce(ones, group=group)
    os.write(1, f"{rank} goes on: {ones}\\n".encode())
    """
    command = mpi_jobs.command(mpi_jobs.find("Open MPI"), 3, program(tmp_path, text))
    job = subprocess.run(
        [command[0], "--with-ft", "ulfm", *command[1:]],
        env=environment(**mpi_jobs.OPEN_MPI),
        capture_output=True,
        text=True,
        timeout=mpi_jobs.LIMIT,
    )
    assert job.returncode == 0, job.stderr
    lines = sorted(job.stdout.split("\n"))
    assert [line for line in lines if "goes on" in line] == [
        "0 goes on: [2. 2.]",
        "2 goes on: [2. 2.]",
    ]


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


@pytest.mark.parametrize("backends", [("mpi", "native"), ("native", "mpi")])
def test_ranks_that_ask_for_another_backend_are_told_before_mpi_begins(
    folder, backends, tmp_path
):
    text = f"""
    import os
    import allhands as dist

    rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
    try:
        dist.init_process_group({backends!r}[rank])
    except ValueError as error:
        os.write(1, f"{{error}}\\n".encode())
    """
    job = mpi_jobs.run(folder, 2, program(tmp_path, text))
    told = f"rank 0 for {backends[0]!r}, rank 1 for {backends[1]!r}; every rank must"
    assert job.stdout.count(told) == 2, job.stderr
