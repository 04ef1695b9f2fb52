"""Backend xccl: the real oneCCL, for arrays in CPU memory, behind our calls."""

import json
import pathlib
import subprocess
import sys

from harness import contract, oneccl
from harness.launcher import program

HERE = pathlib.Path(__file__).parent
SUITES = [
    HERE.parent / "contract" / "test_communicator.py",
    HERE / "random_cases.py",
    HERE / "library_cases.py",
]
PROGRAM = """
    import os, sys
    import numpy as np
    import allhands as dist

    dist.init_process_group("xccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    column = np.full((3, 2), rank + 1.0)[:, 0]
    dist.all_reduce(column)
    kind = type(dist.get_backend_impl()).__name__
    line = f"{dist.get_backend()} {kind} {column.tolist()}"
    try:
        dist.send(column, 1 - rank)
    except NotImplementedError as error:
        line += f" {'no messages' in str(error)}"
    beside = dist.new_group(backend="native")
    dist.sendrecv(column, column, 1 - rank, 1 - rank, beside)
    if sys.argv[1:] == ["die"]:
        if rank == 1:
            os.kill(os.getpid(), 9)
        try:
            dist.all_reduce(column)
        except dist.RankFailedError as error:
            line = f"{error.ranks} {'died without leaving' in str(error)}"
    os.write(1, f"{line}\\n".encode())
"""


def said(job):
    """The lines of the ranks, without those of oneCCL."""
    lines = [line.split("] ", 1)[1] for line in job.stdout.splitlines()]
    return [line for line in lines if "CCL_" not in line]


def test_the_suites_of_every_communicator():
    job = oneccl.run(
        3,
        *("-m", "pytest", "-q", "-rs", "-p", "harness.xccl_ranks"),
        *("-p", "no:cacheprovider", "--color=no", *map(str, SUITES)),
        PYTHONPATH=str(HERE.parent),
    )
    assert job.returncode == 0, contract.told(job)
    assert job.stdout.count(" passed") == 3
    output = "\n".join(said(job))
    assert contract.skips(output) == contract.reasons(*contract.IN_JOBS, "xccl")


def test_a_program_that_the_launcher_starts(tmp_path):
    job = oneccl.run(2, program(tmp_path, PROGRAM))
    assert job.returncode == 0, job.stderr
    assert said(job) == ["xccl XcclCommunicator [3.0, 3.0, 3.0] True"] * 2


def test_a_rank_that_dies_is_named(tmp_path):
    job = oneccl.run(2, program(tmp_path, PROGRAM), "die")
    assert set(said(job)) <= {"[1] True"}
    assert "rank 1 failed: killed by SIGKILL" in job.stderr


def test_it_is_said_to_be_there():
    source = "import allhands as dist; print(dist.is_xccl_available())"
    asked = subprocess.run(
        [sys.executable, "-c", source],
        env=oneccl.variables(),
        capture_output=True,
        text=True,
    )
    assert asked.stdout == "True\n", asked.stderr
    info = subprocess.run(
        [sys.executable, "-m", "allhands", "info", "--json"],
        env=oneccl.variables(),
        capture_output=True,
        text=True,
    )
    facts = {one["name"]: one for one in json.loads(info.stdout)["backends"]}
    assert facts["xccl"]["is_available"]
