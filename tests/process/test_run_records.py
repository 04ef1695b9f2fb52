"""The launcher gathers flight records where a job fails, and says what they tell."""

import json
import os

import pytest

from harness.launcher import environment, launch, program
from harness.nodes import run_nodes

RANK = """
import os, signal, sys, time
from datetime import timedelta
import numpy as np
import allhands as dist

dist.init_process_group()
dist.barrier()
dist.set_timeout(timedelta(seconds=2))
if dist.get_rank() == 1:
    {fault}
dist.all_reduce(np.ones(2))
"""


def run(tmp_path, fault, *more, run_id="job"):
    """`fault`: a statement for rank 1, or what it is to do to itself on demand."""
    statement, faults = fault, ""
    if fault.startswith("do="):
        statement, faults = "pass", f"rank=1,op=all_reduce,{fault}"
    path = program(tmp_path, RANK.format(fault=statement))
    options = [f"--dumps={tmp_path}/records", "--shutdown-timeout=1", *more]
    variables = environment(ALLHANDS_FAULTS=faults)
    ranks = "--nproc-per-node=3", f"--rdzv-id={run_id}"
    return launch(*ranks, *options, path, env=variables)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("time.sleep(999)", "rank 1 is in its own code ({path}:11); ranks 0, 2 wait"),
        ("do=kill", "rank 1: killed by SIGKILL; ranks 0, 2 wait in all_reduce"),
        (
            "do=stop",
            "rank 1: stopped by SIGSTOP, and not continued, after barrier #1 on",
        ),
        ("do=exit:3", "rank 1: exit code 3; ranks 0, 2 wait in all_reduce"),
        ("raise ValueError(7)", "rank 1 raised ValueError: 7 ({path}:11)"),
        ("sys.exit()", "rank 1: ended with exit code 0; ranks 0, 2 wait in all_red"),
    ],
)
def test_the_last_lines_say_what_the_records_tell(tmp_path, fault, told):
    done = run(tmp_path, fault)
    verdict, where = done.stderr.splitlines()[-2:]
    told = told.format(path=tmp_path / "train.py")
    assert verdict.startswith(f"allhands run: by the flight records, {told}")
    file = tmp_path / "records/job_attempt_0.json"
    assert where == f"allhands run: flight records: {file}"
    assert os.listdir(tmp_path / "records") == ["job_attempt_0.json"]
    ranks = {record["rank"] for record in json.loads(file.read_text())["ranks"]}
    assert ranks >= {0, 2}


def test_a_job_that_ends_well_leaves_nothing(tmp_path):
    done = run(tmp_path, "pass")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path / "records") == []


def test_a_program_with_a_handler_of_its_own_is_not_asked(tmp_path):
    handler = "signal.signal(signal.SIGUSR2, lambda *_: print('asked', flush=True))"
    text = RANK.replace("import numpy", f"{handler}\nimport numpy")
    path = program(tmp_path, text.format(fault="time.sleep(999)"))
    options = [f"--dumps={tmp_path}/records", "--shutdown-timeout=1"]
    done = launch("--nproc-per-node=2", *options, path)
    assert done.stdout == ""
    last = done.stderr.splitlines()[-2]
    assert "by the flight records, rank 1 left no record; rank 0 waits" in last


@pytest.mark.parametrize("fault", ["pass", "raise ValueError(7)"])
def test_nothing_else_in_the_folder_is_touched(tmp_path, fault):
    kept = tmp_path / "records/attempt_0/keep.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    run(tmp_path, fault, "--redirects=3", f"--log-dir={tmp_path}", run_id="records")
    assert kept.read_text() == "mine"
    assert (tmp_path / "records/attempt_0/0/stderr.log").exists()


def test_runs_with_the_same_folder_have_files_of_their_own(tmp_path):
    for run_id in ("first", "a/b"):
        run(tmp_path, "raise ValueError(7)", run_id=run_id)
    names = sorted(os.listdir(tmp_path / "records"))
    assert names == ["a%2Fb_attempt_0.json", "first_attempt_0.json"]


def test_a_folder_that_cannot_be_written_is_refused_before_ranks_start(tmp_path):
    (tmp_path / "records").touch()
    done = run(tmp_path, "pass")
    assert (done.returncode, done.stdout) == (2, "")
    told = f"--dumps is '{tmp_path}/records': no folder can be made there: File exists"
    assert told in done.stderr


ODD = """
    told = dist.debug.dump()
    told["entries"][0]["state"] = "started"
    told["time_ns"] = 10**400
    os.makedirs(os.environ["ALLHANDS_DUMPS"], exist_ok=True)
    with open(os.environ["ALLHANDS_DUMPS"] + "/rank_1.json", "w") as file:
        file.write(__import__("json").dumps(told))
    os._exit(3)
"""


def test_an_odd_record_leaves_the_exit_code_as_it_is(tmp_path):
    done = run(tmp_path, ODD.strip())
    assert done.returncode == 3
    assert "\nTraceback" not in f"\n{done.stderr}"  # of the launcher itself
    assert "it is no flight record: TypeError: 1000" in done.stderr


def test_nodes_give_their_files_and_judge_by_none_of_them(tmp_path):
    path = program(tmp_path, RANK.format(fault="raise ValueError(7)"))
    options = ["--rdzv-id=job", f"--dumps={tmp_path}/records", "--shutdown-timeout=1"]
    first, second = run_nodes([2, 1], *options, path)
    assert (first.code, second.code) == (1, 1)
    file = tmp_path / "records/job_attempt_0_node_0.json"
    assert first.stderr.endswith(f"\nallhands run: flight records: {file}\n")
    assert "by the flight records" not in first.stderr + second.stderr
    ranks = {told["rank"] for told in json.loads(file.read_text())["ranks"]}
    assert ranks == {0, 1}
