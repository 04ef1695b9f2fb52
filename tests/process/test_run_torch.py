"""Programs of this package under PyTorch's launcher, which hosts a store of its own."""

import time

import pytest

from harness.launcher import environment, launch, program
from harness.pace import patient
from harness.ports import reserved_port

pytest.importorskip("torch")
OPTIONS = ["--nproc-per-node=2", "--standalone"]


def test_a_program_under_torchrun_is_told_so_at_once(tmp_path):
    text = """
        import os, time
        import allhands as dist

        start = time.monotonic()
        try:
            dist.init_process_group()
        except dist.DistNetworkError as error:
            line = f"{time.monotonic() - start:.1f} s: {error}\\n"
            os.write(1, line.encode())  # at once: torchrun lets lines of ranks mix
    """
    begin = time.monotonic()
    done = launch(*OPTIONS, program(tmp_path, text), module="torch.distributed.run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert float(line.partition(" s: ")[0]) < patient(5, begin)
        assert "in place of torchrun" in line
        assert "`allhands run`" in line


def test_what_the_error_says_to_do_under_torchrun_works(tmp_path):
    text = """
        import os
        import numpy as np
        import allhands as dist

        del os.environ["TORCHELASTIC_USE_AGENT_STORE"]
        os.environ["MASTER_PORT"] = os.environ["OTHER_PORT"]
        dist.init_process_group()
        array = np.ones(1)
        dist.all_reduce(array)
        os.write(1, b"%d\\n" % array[0])
        dist.destroy_process_group()
    """
    path = program(tmp_path, text)
    with reserved_port() as port:
        env = environment(OTHER_PORT=str(port))
        done = launch(*OPTIONS, path, module="torch.distributed.run", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "2"]


@pytest.mark.parametrize("backend", ["gloo", "allhands"])
def test_programs_of_torch_run_here_and_start_again(tmp_path, backend):
    text = f"""
        import os
        import torch
        import torch.distributed as dist

        dist.init_process_group("{backend}")
        x = torch.ones(2)
        dist.all_reduce(x)
        print(os.environ["TORCHELASTIC_RESTART_COUNT"], x.tolist())
        dist.barrier()
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os._exit(3)
        dist.destroy_process_group()
    """
    path = program(tmp_path, text)
    done = launch("--nproc-per-node=2", "--max-restarts=1", path)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"[rank{rank}] {n} [2.0, 2.0]" for rank in (0, 1) for n in (0, 1)]


def test_both_packages_meet_in_one_program(tmp_path):
    text = """
        import numpy as np
        import torch
        import torch.distributed
        import allhands

        torch.distributed.init_process_group("allhands")
        allhands.init_process_group()
        x, y = torch.ones(1), np.ones(1)
        torch.distributed.all_reduce(x)
        allhands.all_reduce(y)
        print(x.item() + y.item())
        allhands.destroy_process_group()
        torch.distributed.destroy_process_group()
    """
    done = launch("--nproc-per-node=2", program(tmp_path, text))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[rank0] 4.0", "[rank1] 4.0"]
