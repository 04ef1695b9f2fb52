"""The launch utility as the reference shows it; ranks are processes."""

from harness.launcher import launch, program

PARSES = """
    import argparse
    import numpy as np
    import allhands as dist

    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", type=int)
    parser.add_argument("--arg1")
    args = parser.parse_args()
    dist.init_process_group(backend="gloo", init_method="env://")
    total = np.array([args.local_rank])
    dist.all_reduce(total)
    print(args.local_rank == dist.get_rank(), args.arg1, total[0])
"""

READS = """
    import os
    import allhands as dist

    dist.init_process_group(backend="gloo", init_method="env://")
    print(int(os.environ["LOCAL_RANK"]) == dist.get_rank())
    assert dist.is_torchelastic_launched()
"""


def test_launch_passes_local_rank(tmp_path):
    path = program(tmp_path, PARSES)
    options = ["--replace-gloo", "--nproc-per-node=3", path, "--arg1=x"]
    done = launch(*options, module="allhands.launch")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"[rank{r}] True x 3" for r in range(3)]


def test_launch_with_use_env(tmp_path):
    options = ["--use-env", "--replace-gloo", "-n2", program(tmp_path, READS)]
    done = launch(*options, module="allhands.launch")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[rank0] True", "[rank1] True"]


def test_launch_help():
    done = launch("--help", module="allhands.launch")
    assert done.returncode == 0
    assert "--use-env" in done.stdout
    assert "--nproc-per-node" in done.stdout
