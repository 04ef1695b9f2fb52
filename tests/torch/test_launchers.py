"""Programs of both packages under both launchers."""

import pytest

from harness.launcher import environment, launch, program
from harness.ports import reserved_port

pytest.importorskip("torch")
OPTIONS = ["--nproc-per-node=2", "--standalone"]


def torchrun(*arguments, **options):
    done = launch(*arguments, module="torch.distributed.run", **options)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split("\n"))[1:]


# Lines are written at once: torchrun lets those of ranks mix.
PROGRAM = """
    import os
    import numpy as np
    import allhands as dist

    count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for world in range(2):
        dist.init_process_group()
        pair = dist.new_group([0, 1])
        array = np.ones(1)
        for group in (None, pair):
            dist.all_reduce(array, group=group)
        dist.barrier()
        os.write(1, b"%d %d %d\\n" % (count, world, array[0]))
        dist.barrier()
        dist.destroy_process_group()
"""
# Rank 1 goes without a good-bye, in the first world of two starts.
FAULTS = ";".join(
    f"rank=1,op=barrier,nth=2,attempt={attempt},do=exit:3" for attempt in (0, 1)
)


@pytest.mark.parametrize("how", ["standalone", "static"])
def test_programs_of_ours_run_under_torchrun_and_start_again(tmp_path, how):
    path = program(tmp_path, PROGRAM)
    options = ["--nproc-per-node=2", "--max-restarts=2", "--monitor-interval=0.1"]
    with reserved_port() as port:
        place = ["--standalone"] if how == "standalone" else [f"--master-port={port}"]
        env = environment(ALLHANDS_FAULTS=FAULTS)
        lines = torchrun(*place, *options, path, env=env)
    worlds = ["0 0 4", "1 0 4", "2 0 4", "2 1 4"]
    assert lines == [line for line in worlds for _ in range(2)]


def test_a_rank_that_does_not_come_under_torchrun_is_named(tmp_path):
    text = """
        import os
        from datetime import timedelta
        import allhands as dist

        absent = int(os.environ["ABSENT"])
        if int(os.environ["RANK"]) != absent:
            try:
                dist.init_process_group(timeout=timedelta(seconds=1))
            except dist.DistStoreError as error:
                os.write(1, f"{error}\\n".encode())
    """
    path = program(tmp_path, text)
    for absent in (0, 1):
        env = environment(ABSENT=str(absent))
        [line] = torchrun(*OPTIONS, path, env=env)
        assert f"rank {1 - absent} (this process) timed out: waited 1 s" in line
        missing = "[1]" if absent else "rank 0, which did not come"
        assert missing in line


@pytest.mark.parametrize("is_first", [True, False])
def test_both_packages_meet_in_one_program_under_torchrun(tmp_path, is_first):
    text = f"""
        import os
        import numpy as np
        import torch
        import torch.distributed
        import allhands

        if {is_first}:
            allhands.init_process_group()
        torch.distributed.init_process_group("gloo")
        if not {is_first}:
            allhands.init_process_group()
        x, y = torch.ones(1), np.ones(1)
        torch.distributed.all_reduce(x)
        allhands.all_reduce(y)
        os.write(1, b"%d\\n" % (x.item() + y[0]))
        allhands.destroy_process_group()
        torch.distributed.destroy_process_group()
    """
    assert torchrun(*OPTIONS, program(tmp_path, text)) == ["4", "4"]


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


def test_a_start_under_torchrun_reads_nothing_of_one_that_died_as_it_met(tmp_path):
    text = """
        import os
        import torch
        import torch.distributed as dist

        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            if os.environ["RANK"] == "1":
                store, *_ = next(dist.rendezvous("env://"))
                # Rank 0 has entered the world's meeting, which this one never will.
                store.wait(["default_pg/0//cpu//allhands/attempt_0/join/0"])
                os._exit(3)
        dist.init_process_group("allhands")
        x = torch.ones(1)
        dist.all_reduce(x)
        os.write(1, b"%d\\n" % x.item())
        dist.destroy_process_group()
    """
    path = program(tmp_path, text)
    assert torchrun(*OPTIONS, "--max-restarts=1", path) == ["2", "2"]


def test_worlds_one_after_another_under_torchrun(tmp_path):
    """torch's names begin anew with each, and the store is the same."""
    text = """
        import os
        import torch
        import torch.distributed as dist

        seen = []
        for members in ([0, 1], [0, 1, 2], [1, 2]):
            dist.init_process_group("allhands")
            group = dist.new_group(members)
            if dist.get_rank() in members:
                x = torch.ones(1)
                dist.all_reduce(x, group=group)
                seen.append(int(x))
            dist.destroy_process_group()
        os.write(1, f"{seen}\\n".encode())
    """
    options = ["--standalone", "--nproc-per-node=3"]
    lines = torchrun(*options, program(tmp_path, text))
    assert lines == ["[2, 3, 2]", "[2, 3]", "[3, 2]"]
