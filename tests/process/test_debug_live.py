"""`allhands debug` of jobs that run, without having been told to them before."""

import os
import re
import signal
import subprocess
import sys
import uuid

import pytest

from allhands.debug import asking, command
from allhands.debug.job_record import read_job
from allhands.elastic.records import HALTED, NO_ANSWER
from harness.launcher import environment, launched, program, read_until, wait_until
from harness.ranks import LIMIT

TRAIN = """
    import itertools, os, sys, time
    import numpy as np
    import allhands as dist

    dist.init_process_group()
    dist.barrier()
    print("pid", dist.get_rank(), os.getpid(), flush=True)
    if dist.get_rank() == 1:
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)  # HERE
    dist.all_reduce(np.ones(2))
    print("done", flush=True)
    if dist.get_rank() == 1:
        all(itertools.repeat(True))  # BUSY
    dist.barrier()
"""


def test_a_job_that_runs_is_asked(tmp_path, capsys, monkeypatch):
    """By its launcher, by a rank, by its run id; it goes on as if nothing had been."""
    monkeypatch.setenv("COLUMNS", "200")
    path, flag = program(tmp_path, TRAIN), tmp_path / "flag"
    line, busy = (
        TRAIN[: TRAIN.index(mark)].count("\n") + 1 for mark in ("# HERE", "# BUSY")
    )

    def says(job, *options):
        code = command.main([str(job), "--least-wait=0", *options])
        shown = capsys.readouterr()
        return code, shown.out or shown.err

    def waits_for(told, job, *options):
        def is_so():
            code, text = says(job, *options)
            return code == 1 and text.startswith(told)

        wait_until(is_so, 20, f"{told} of {job}")

    run_id = f"asked-{uuid.uuid4().hex}"  # of no other job of this host
    options = ("--nproc-per-node=3", "--shutdown-timeout=1", f"--rdzv-id={run_id}")
    with launched(*options, path, str(flag)) as job:
        lines = read_until(job, 3, "pid ")
        told = (re.search(r"pid (\d) (\d+)", line) for line in lines)
        pids = {int(found[1]): int(found[2]) for found in told if found}
        stuck = f"rank 1 is in its own code ({path}:{line}); ranks 0, 2 wait in all_red"
        for whom in (job.pid, pids[2], run_id):
            waits_for(stuck, whom)

        saved = tmp_path / "saved.json"
        assert says(pids[0], f"--save={saved}")[0] == 1
        assert [dump.rank for dump in read_job([saved]).dumps] == [0, 1, 2]

        os.kill(pids[1], signal.SIGSTOP)
        told = f"rank 1: {HALTED}, after barrier #1 on group '0' ({path}:{line}); ranks"
        waits_for(f"{told} 0, 2 wait in all_reduce #2", job.pid, "--wait=0.3")
        os.kill(pids[1], signal.SIGCONT)

        flag.touch()
        read_until(job, 3, "done")
        told = f"rank 1: {NO_ANSWER}, after all_reduce #2 on group '0' ({path}:{busy})"
        waits_for(f"{told}; ranks 0, 2 wait in b", job.pid, "--wait=0.3")
        os.kill(pids[1], signal.SIGKILL)
        job.communicate(timeout=LIMIT)


BY_HAND = """
    import sys
    import allhands as dist

    url, rank, size = sys.argv[1:]
    dist.init_process_group(init_method=url, rank=int(rank), world_size=int(size))
    print("met", flush=True)
    sys.stdin.read()
"""


def test_ranks_that_nobody_has_marked_are_found_by_their_world(tmp_path):
    path = program(tmp_path, BY_HAND)
    marks = (asking._JOB, asking.RUN_ID, "RANK", *asking._MEETING)
    env = {k: v for k, v in environment().items() if k not in marks}
    ranks = [
        subprocess.Popen(
            [sys.executable, path, f"file://{tmp_path / world}", rank, size],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for world, rank, size in ["a02", "a12", "b01"]
    ]
    try:
        for rank in ranks:
            assert rank.stdout.readline() == "met\n"
        first, second, other = (rank.pid for rank in ranks)
        assert asking.ranks_of(str(second)) == sorted([first, second])
        assert asking.ranks_of(str(other)) == [other]
        os.kill(second, signal.SIGSTOP)
        record = asking.ask([first, second], 1.0)
        assert [dump.rank for dump in record.dumps] == [0]
        assert record.endings[1].startswith(HALTED)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (
            "no-such-job",
            "'no-such-job' is no file, and no run id of a job on this host",
        ),
        (
            "999999999",
            "'999999999' is no file, and no run id of a job on this host that you may "
            "look at, and there is no process 999999999",
        ),
        (
            "sleep",
            "answers: ranks do from init_process_group on, unless they had a handler",
        ),
    ],
)
def test_who_cannot_be_asked_is_left_alone(job, problem, capsys):
    with subprocess.Popen(["sleep", "999"]) as process:
        try:
            assert command.main([str(process.pid) if job == "sleep" else job]) == 2
            assert f"allhands debug: {'no process of ' * (job == 'sleep')}" in (
                error := capsys.readouterr().err
            )
            assert problem in error
            assert process.poll() is None
        finally:
            process.kill()
