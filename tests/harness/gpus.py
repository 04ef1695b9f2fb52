"""Jobs of `allhands run` whose ranks use GPUs; tests without a GPU skip themselves.

NCCL 2.32 lets several ranks share a GPU if it is told so. With an older one a job has
as many ranks as there are GPUs.
"""

import functools
import os
import pathlib

import pytest

from allhands.backends.nccl.library import nccl_version, why_no_nccl
from harness.launcher import environment, launch

TESTS = pathlib.Path(__file__).parents[1]
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
_FIRST_THAT_SHARES = (2, 32)


@functools.cache
def count():
    """The number of GPUs that torch can use; without one the test skips itself."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    return torch.cuda.device_count()


def ranks_of_nccl(wanted):
    """How many of the ranks that a test wants NCCL can have here."""
    num_gpus = count()
    problem = why_no_nccl()
    if problem:
        pytest.skip(problem)
    version = nccl_version().split()[1].rstrip(",")
    can_share = tuple(map(int, version.split(".")[:2])) >= _FIRST_THAT_SHARES
    return wanted if can_share else min(wanted, num_gpus)


def run(size, *arguments, **others):
    """Run a job to its end."""
    count()
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = environment(**SHARED, PYTHONPATH=path, **others)
    return launch("-n", str(size), *arguments, env=given)
