"""Ranks that meet in the launcher's store."""

import os
import re
import socket

import pytest

from harness.launcher import environment, launch, program
from harness.ports import reserved_port

MEET = """
    import os
    import numpy as np
    import allhands as dist

    dist.init_process_group("native")
    rank = dist.get_rank()
    ones = np.ones(4)
    dist.all_reduce(ones)
    assert ones[0] == dist.get_world_size()
"""


def test_ranks_meet(tmp_path):
    done = launch("--nproc-per-node=3", program(tmp_path, MEET + "    print('met')\n"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("met") == 3


def test_ranks_meet_again_after_a_restart(tmp_path):
    path = program(tmp_path, MEET + "    dist.barrier()\n    print('met')\n")
    faults = environment(ALLHANDS_FAULTS="rank=1,op=barrier,attempt=0,do=kill")
    done = launch("--nproc-per-node=3", "--max-restarts=1", path, env=faults)
    assert done.returncode == 0
    assert done.stdout.count("met") == 3
    assert "rank 1 failed: killed by SIGKILL; all ranks start again" in done.stderr


def test_the_rank_that_died_is_named_not_those_that_noticed(tmp_path):
    text = (
        MEET
        + """
    if rank == 2:
        raise ValueError("mine")
    while True:
        dist.all_reduce(ones)
"""
    )
    done = launch("--nproc-per-node=4", program(tmp_path, text))
    last = done.stderr.splitlines()[-15:]
    assert done.returncode == 1
    assert "allhands run: rank 2 failed: ValueError: mine" in last


def test_port_of_another_is_refused_with_a_reason(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = launch(f"--master-port={port}", program(tmp_path, "print('no')"))
    assert (done.returncode, done.stdout) == (1, "")
    assert str(port) in done.stderr
    assert str(os.getpid()) in done.stderr  # who holds it


def test_a_chosen_address_and_port(tmp_path):
    text = MEET + '    print(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])\n'
    with reserved_port() as port:
        options = ["--master-addr=localhost", f"--master-port={port}"]
        done = launch(*options, program(tmp_path, text), env=environment())
    assert done.stdout == f"[rank0] localhost {port}\n"


def test_a_rank_that_found_the_store_and_ended_well_is_named(tmp_path):
    path = program(
        tmp_path,
        """
        import os
        import allhands as dist
        from allhands.rendezvous import attendance

        def end(*_):
            os._exit(0)

        if os.environ["RANK"] == "1":
            attendance.Attendance.come = end
        try:
            dist.init_process_group()  # for 30 minutes
        except dist.RankFailedError as error:
            print(error)
        """,
    )
    done = launch("--nproc-per-node=2", path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"needs rank 1 \(pid \d+\), which came and died", done.stdout)


@pytest.mark.parametrize("ended", [0, 1])
def test_a_rank_that_ended_well_before_it_came_is_named(tmp_path, ended):
    path = program(
        tmp_path,
        f"""
        import os, sys
        if os.environ["RANK"] == "{ended}":
            sys.exit(0)
        import allhands as dist
        try:
            dist.init_process_group()  # for 30 minutes
        except (dist.RankFailedError, dist.DistStoreError) as error:
            print(error, flush=True)
        """,
    )
    done = launch("--nproc-per-node=3", path)
    assert done.returncode == 0, done.stderr
    told = rf"needs rank {ended} \(pid \d+\), which ended with exit code 0 before it"
    assert len(re.findall(told, done.stdout)) == 2, done.stdout


def test_ranks_that_are_left_may_meet_under_other_numbers(tmp_path):
    path = program(
        tmp_path,
        """
        import os, sys, time
        rank = int(os.environ["RANK"])
        if rank == 0:
            sys.exit(0)
        import allhands as dist
        store, *_ = next(dist.rendezvous("env://"))
        store.wait(["ended/3/0"])  # the launcher has seen it
        os.environ.update(RANK=str(rank - 1), WORLD_SIZE="2")
        if rank == 1:
            time.sleep(1)  # so that the other one waits, and looks around
        dist.init_process_group()
        dist.barrier()
        print("met", dist.get_rank(), flush=True)
        """,
    )
    done = launch("--nproc-per-node=3", path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank1] met 0", "[rank2] met 1"]
