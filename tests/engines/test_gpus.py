"""Arrays on GPUs: through the host with `native`, by the real NCCL with `nccl`."""

import pathlib

import pytest

from harness import contract, gpus
from harness.launcher import program

HERE = pathlib.Path(__file__).parent
DIE = """
    import os, signal
    import torch
    import allhands as dist

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's; it waits a while
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    array = torch.ones(1000, device="cuda")
    dist.all_reduce(array)
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), 9)
    try:
        work = dist.all_reduce(array, async_op=True)
        while not work.is_completed():
            pass
        work.wait()
    except dist.RankFailedError as error:
        os.write(1, f"{error.ranks} died\\n".encode())
"""


def suite(size, *files, backend):
    """Run tests in a job of so many ranks; they are to pass on each."""
    job = gpus.run(
        size,
        *("-m", "pytest", "-q", "-rs", "-p", "harness.gpu_ranks"),
        *("-p", "no:cacheprovider", "--color=no", *map(str, files)),
        GPU_BACKEND=backend,
    )
    assert job.returncode == 0, f"{job.stdout[-8000:]}\n{job.stderr[-2000:]}"
    assert job.stdout.count(" passed") == size
    return "\n".join(line.split("] ", 1)[-1] for line in job.stdout.splitlines())


def test_native_by_way_of_the_host():
    gpus.count()
    suite(3, HERE / "gpu_cases.py", backend="native")


@pytest.mark.parametrize("wanted", [1, 3])
def test_nccl(wanted):
    files = HERE / "gpu_cases.py", HERE / "gpu_stream_cases.py"
    suite(gpus.ranks_of_nccl(wanted), *files, backend="nccl")


@pytest.mark.parametrize("wanted", [1, 3])
def test_nccl_in_graphs(wanted):
    suite(gpus.ranks_of_nccl(wanted), HERE / "gpu_graph_cases.py", backend="nccl")


def test_the_contract_of_communicators():
    if gpus.ranks_of_nccl(4) < 4:
        pytest.skip("the suite has 3 ranks, and this NCCL lets no ranks share a GPU")
    printed = suite(4, contract.SUITE, backend="nccl")
    assert contract.skips(printed) == contract.reasons(*contract.IN_JOBS, "nccl")


def test_a_rank_that_dies_is_named(tmp_path):
    if gpus.ranks_of_nccl(2) < 2:
        pytest.skip("there is one GPU, and this NCCL lets no ranks share it")
    job = gpus.run(2, program(tmp_path, DIE))
    assert "[1] died" in job.stdout, job.stderr
    assert "rank 1 failed: killed by SIGKILL" in job.stderr
