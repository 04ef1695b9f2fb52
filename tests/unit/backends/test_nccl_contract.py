"""Backend nccl keeps the contract of communicators, on stand-ins for CUDA and NCCL."""

import pathlib
import subprocess
import sys

from harness import contract
from harness.launcher import environment

TESTS = pathlib.Path(__file__).parents[2]


def test_the_suite_of_every_communicator():
    job = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rs"),
            *("-p", "harness.fake_nccl_ranks", "-p", "no:cacheprovider"),
            *("--color=no", str(contract.SUITE)),
        ],
        env=environment(PYTHONPATH=str(TESTS)),
        capture_output=True,
        text=True,
    )
    assert job.returncode == 0, contract.told(job)
    assert contract.skips(job.stdout) == contract.reasons(*contract.IN_JOBS, "nccl")
