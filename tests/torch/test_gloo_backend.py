"""Backend gloo of this package: torch's own Gloo behind our calls."""

import pathlib
import subprocess
import sys

import pytest

import allhands as dist
from harness import contract
from harness.launcher import environment, launch, program
from harness.ranks import LIMIT, Processes

ROOT = pathlib.Path(__file__).parents[1]
SUITES = [
    ROOT / "contract" / "test_communicator.py",
    ROOT / "engines" / "random_cases.py",
    ROOT / "engines" / "library_cases.py",
    ROOT / "engines" / "gloo_cases.py",
]


def test_the_suites_of_every_communicator():
    """One process, whose threads are the ranks."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "harness.gloo_ranks"),
            *("-p", "no:cacheprovider", *map(str, SUITES)),
        ],
        env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=LIMIT + 100,
    )
    assert done.returncode == 0, contract.told(done)
    assert " passed" in done.stdout
    assert contract.skips(done.stdout) == contract.reasons(*contract.IN_JOBS, "gloo")


PROGRAM = """
    import os, sys
    import numpy as np
    import allhands as dist

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    column = np.full((3, 2), rank + 1.0)[:, 0]
    dist.all_reduce(column)
    everybody = [None] * size
    dist.all_gather_object(everybody, rank)
    kind = type(dist.get_backend_impl()).__name__
    line = f"{dist.get_backend()} {kind} {column.tolist()} {everybody}"
    assert ("torch" in sys.modules) is (kind == "GlooCommunicator")
    if sys.argv[1:] == ["die"]:
        try:
            with dist.debug.faults("rank=1,do=exit:3"):
                dist.all_reduce(column)
        except dist.RankFailedError as error:
            line = f"{error.ranks} {'died without leaving' in str(error)}"
    os.write(1, f"{line}\\n".encode())
"""


def test_processes_on_gloo_and_a_switch_that_replaces_it(tmp_path):
    path = program(tmp_path, PROGRAM)
    said = "gloo {} [3.0, 3.0, 3.0] [0, 1]"
    for options, kind in (([], "Gloo"), (["--replace-gloo"], "Native")):
        done = launch("-n", "2", *options, path)
        assert (done.returncode, done.stderr) == (0, "")
        lines = sorted(line.split("] ", 1)[1] for line in done.stdout.splitlines())
        assert lines == [said.format(f"{kind}Communicator")] * 2


def test_a_rank_that_dies_is_named(tmp_path):
    done = launch("-n", "3", program(tmp_path, PROGRAM), "die")
    lines = [line.split("] ", 1)[1] for line in done.stdout.splitlines()]
    assert set(lines) <= {"[1] True"}
    assert "rank 1 failed: exit code 3" in done.stderr


def test_a_rank_that_dies_before_all_are_connected_is_named():
    source = """
        from allhands.backends.gloo import backend as gloo

        meet = gloo.meet
        def met(where, *rest):
            if (rank, where) == (1, "connected"):
                os._exit(3)
            meet(where, *rest)
        gloo.meet = met
        close, closed = gloo.GlooCommunicator.close, []
        def closing(made, grace):
            close(made, grace)
            closed.append(made._group)
        gloo.GlooCommunicator.close = closing
        try:
            dist.new_group(backend="gloo")
        except dist.RankFailedError as error:
            give((error.ranks, str(error), closed))
    """
    with Processes(3, source) as job:
        results = job.join(codes=[0, 3, 0])
        died = f"it needs rank 1 (pid {job.ranks[1].pid}), which died before it came"
    for rank in (0, 2):
        ranks, text, closed = results[rank]
        assert (ranks, closed) == ([1], [None])
        assert text.startswith("group ")
        assert text.endswith(died)


def test_without_torch_the_error_says_what_to_do(monkeypatch):
    from allhands.backends.gloo import backend as gloo

    monkeypatch.setattr(gloo, "why_no_gloo", lambda: "torch is not here; native is")
    with pytest.raises(RuntimeError, match="backend 'gloo': torch is not here; native"):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()
