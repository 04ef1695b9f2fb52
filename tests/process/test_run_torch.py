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
