"""What a rank gets, what the console shows, what exit codes mean."""

import json
import subprocess
import sys

import pytest

from harness.launcher import environment, launch, program
from harness.ranks import LIMIT

SHOW = """
    import json, os, sys
    print(json.dumps({"env": dict(os.environ), "argv": sys.argv}))
"""


def shown(text: str) -> list[dict]:
    """What SHOW printed on each rank, in the order of ranks."""
    rows = [json.loads(line.partition(" ")[2]) for line in text.splitlines()]
    return sorted(rows, key=lambda row: int(row["env"]["RANK"]))


def test_sets_torchruns_environment(tmp_path):
    path = program(tmp_path, SHOW)
    done = launch("--nproc-per-node", "3", "--rdzv-id", "job7", path, "--x", "1")
    assert (done.returncode, done.stderr) == (0, "")
    ranks = shown(done.stdout)
    assert len(ranks) == 3
    for rank, row in enumerate(ranks):
        env = row["env"]
        assert row["argv"] == [path, "--x", "1"]
        assert env["RANK"] == env["LOCAL_RANK"] == env["ROLE_RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == "3"
        assert env["ROLE_WORLD_SIZE"] == "3"
        assert (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"]) == ("0", "1")
        assert env["ROLE_NAME"] == "default"
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert 0 < int(env["MASTER_PORT"]) < 65536
        assert env["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert env["TORCHELASTIC_MAX_RESTARTS"] == "0"
        assert env["TORCHELASTIC_RUN_ID"] == "job7"
        assert env["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        store, _, master_port = env["ALLHANDS_STORE"].rpartition("@")
        assert store.startswith("127.0.0.1:")
        assert master_port == env["MASTER_PORT"] != store.rpartition(":")[2]
        assert env["OMP_NUM_THREADS"] == "1"
        assert len(bytes.fromhex(env["ALLHANDS_SECRET"])) == 32
    assert len({row["env"]["MASTER_PORT"] for row in ranks}) == 1
    assert len({row["env"]["ALLHANDS_SECRET"] for row in ranks}) == 1


def test_leaves_what_the_user_has_set(tmp_path):
    path = program(tmp_path, SHOW)
    env = environment(OMP_NUM_THREADS="7", ALLHANDS_SECRET="mine")
    done = launch("--nproc-per-node=2", path, env=env)
    for row in shown(done.stdout):
        assert row["env"]["OMP_NUM_THREADS"] == "7"
        assert row["env"]["ALLHANDS_SECRET"] == "mine"


def test_one_rank_keeps_all_its_threads(tmp_path):
    (row,) = shown(launch(program(tmp_path, SHOW)).stdout)
    assert "OMP_NUM_THREADS" not in row["env"]


def test_options_from_the_environment(tmp_path):
    path = program(tmp_path, SHOW)
    done = launch(path, env=environment(PET_NPROC_PER_NODE="2", PET_STANDALONE="1"))
    assert len(shown(done.stdout)) == 2


def test_module(tmp_path):
    program(tmp_path, SHOW, "worker.py")
    done = launch("-m", "worker", "a", cwd=tmp_path)
    (row,) = shown(done.stdout)
    assert row["argv"] == [str(tmp_path / "worker.py"), "a"]


def test_the_environment_names_another_python(tmp_path):
    other = tmp_path / "other"
    other.write_text(f'#!/bin/sh\nOTHER=1 exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    path = program(tmp_path, SHOW, "worker.py")
    for options in [path], ["-m", "worker"], ["--run-path", path]:
        env = environment(PYTHON_EXEC=str(other))
        (row,) = shown(launch(*options, cwd=tmp_path, env=env).stdout)
        assert row["env"]["OTHER"] == "1"


def test_run_path(tmp_path):
    path = program(tmp_path, SHOW)
    (row,) = shown(launch("--run-path", path, "a").stdout)
    assert row["argv"] == [path, "a"]


@pytest.mark.parametrize("ranks", ["--nproc_per_node=2", "--nproc=2", "-n2"])
def test_no_python(ranks):
    done = launch("--no_python", ranks, "/bin/echo", "hi")
    assert sorted(done.stdout.splitlines()) == ["[rank0] hi", "[rank1] hi"]


def test_launch_passes_local_rank_unless_told_not_to(tmp_path):
    path = program(tmp_path, SHOW)
    arguments = ["--nproc-per-node=2", path, "a"]
    rows = shown(launch(*arguments, module="allhands.launch").stdout)
    assert [row["argv"][1:] for row in rows] == [
        ["--local-rank=0", "a"],
        ["--local-rank=1", "a"],
    ]
    rows = shown(launch("--use-env", *arguments, module="allhands.launch").stdout)
    assert [row["argv"][1:] for row in rows] == [["a"], ["a"]]


def test_command_of_the_package():
    command = [sys.executable, "-m", "allhands", "run", "--no-python", "/bin/true"]
    assert subprocess.run(command, check=False).returncode == 0


def test_an_address_that_cannot_be_reached_is_said_before_ranks_start():
    done = launch("--master-addr=224.0.0.1", "--no-python", "/bin/echo", "started")
    assert done.returncode == 1
    assert done.stdout == ""
    assert (
        "python -m allhands.run: this process serves a store at 224.0.0.1:"
        in done.stderr
    )


def test_unknown_program_exits_as_a_shell_would():
    done = launch("--no-python", "/no/such/program")
    assert done.returncode == 127
    assert "/no/such/program" in done.stderr


def test_a_missing_program_is_one_error_before_ranks_start(tmp_path):
    path = str(tmp_path / "none.py")
    done = launch("-n", "3", f"--log-dir={tmp_path}", "--redirects=3", path)
    assert done.returncode == 127
    assert done.stdout == ""
    assert done.stderr == (
        "python -m allhands.run: cannot start the ranks: No such file or directory: "
        f"'{path}'\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_missing_module_is_one_error_before_ranks_start():
    done = launch("-n", "3", "-m", "no_such_module_of_anybody")
    assert done.returncode == 127
    assert done.stdout == ""
    assert done.stderr == (
        "python -m allhands.run: cannot start the ranks: No such module: "
        "'no_such_module_of_anybody'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nnodes=1:4", "x.py"], "nodes that come and go are not there yet"),
        (["--nnodes=two", "x.py"], "--nnodes is 'two'; want a number from 1 up"),
        (["--nnodes=2", "x.py"], "--nnodes 2 needs --master-addr: a name or address"),
        (["--nnodes=2", "--standalone", "x.py"], "exclude each other"),
        (["--nnodes=2", "--rdzv-backend=c10d", "x.py"], "is c10d; with --nnodes 2"),
        (["--node-rank=1", "x.py"], "is 1; with --nnodes 1 it must be 0"),
        (
            ["--nnodes=3", "--node-rank=3", "--master-addr=a", "x.py"],
            "is 3; with --nnodes 3 it must be a number from 0 to 2",
        ),
        (
            ["--nnodes=2", "--master-addr=a", "--rdzv-conf=timeout=soon", "x.py"],
            "--rdzv-conf: timeout is 'soon'; want seconds, above 0",
        ),
        (["--rdzv-conf=timeout=soon", "x.py"], "timeout is 'soon'; want seconds"),
        (["--rdzv-conf=timeout", "x.py"], "is 'timeout'; want key=value, with commas"),
        (["--rdzv-conf=timeout=1,,", "x.py"], "is 'timeout=1,,'; want key=value, with"),
        (["--rdzv-conf==1", "x.py"], "is '=1'; want key=value, with commas"),
        (["--rdzv-backend=c10", "x.py"], "is 'c10'; want one of static, c10d, etcd"),
        (["--nproc-per-node=0", "x.py"], "'0'; want a number from 1 up"),
        (["--nproc-per-node=gpus", "x.py"], "want a number from 1 up, or one of auto"),
        (["-n", "9" * 20, "x.py"], "a job has at most 1048576 ranks"),
        (
            ["--redirects=7", "x.py"],
            "'7' does not match a choice of streams: want 0, 1, 2",
        ),
        (["--max-restarts=-1", "x.py"], "--max-restarts is -1; want 0 or more"),
        (["--shutdown-timeout=-3", "x.py"], "is -3.0; want seconds, 0 or more"),
        (["--monitor-interval=0", "x.py"], "is 0.0; want seconds, above 0"),
        (["--local-ranks-filter=0,1", "x.py"], "is '0,1'; want local ranks in [0, 1)"),
        (["--local-ranks-filter=a", "x.py"], "is 'a'; want local ranks in [0, 1)"),
        ([], "the following arguments are required: program\n"),
        (
            ["--log-dir=/proc/none", "--tee=3", "/bin/true"],
            "--log-dir is '/proc/none': no file can be made there: No such file or",
        ),
        (
            ["--log-dir=/dev/null", "--redirects=1", "/bin/true"],
            "--log-dir is '/dev/null': no file can be made there: File exists; want a",
        ),
    ],
)
def test_wrong_options_are_said(arguments, message):
    done = launch(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_setting_that_cannot_be_read_is_said_before_ranks_start():
    env = environment(ALLHANDS_PATIENCE="long")
    done = launch("-n", "2", "--no-python", "/bin/echo", "started", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[1:] == [
        "python -m allhands.run: error: environment variable ALLHANDS_PATIENCE is "
        "'long': it must be a number of seconds, 0 or more"
    ]


@pytest.mark.parametrize(
    "options",
    [
        ["--rdzv-backend=c10d", "--rdzv-conf=is_host=1, timeout = 5"],
        ["--rdzv-backend=etcd-v2", "--rdzv-conf="],
        ["--standalone", "--rdzv-backend=nothing"],
    ],
)
def test_one_node_takes_what_torchrun_does_for_several(options):
    done = launch(*options, "--no-python", "/bin/echo", "started")
    assert (done.returncode, done.stdout) == (0, "[rank0] started\n")


def test_first_rank_gets_stdin(tmp_path):
    path = program(tmp_path, "import sys; print(repr(sys.stdin.read()))")
    done = launch("--nproc-per-node=2", path, stdin=None, input="typed")
    assert sorted(done.stdout.splitlines()) == ["[rank0] 'typed'", "[rank1] ''"]


def test_lines_of_ranks_do_not_mix(tmp_path):
    text = """
        import os, sys
        letter = "abc"[int(os.environ["RANK"])]
        for i in range(2000):
            sys.stdout.write(letter * 50)
            sys.stdout.write(letter * 51 + "\\n")
        sys.stdout.write("end")
    """
    done = launch("--nproc-per-node=3", program(tmp_path, text))
    lines = done.stdout.splitlines()
    for rank, letter in enumerate("abc"):
        assert lines.count(f"[rank{rank}] {letter * 101}") == 2000
        assert lines.count(f"[rank{rank}] end") == 1
    assert len(lines) == 3 * 2001


def test_console_shows_the_chosen_ranks(tmp_path):
    path = program(tmp_path, "print('hi')")
    done = launch("--nproc-per-node=3", "--local-ranks-filter=0,2", path)
    assert sorted(done.stdout.splitlines()) == ["[rank0] hi", "[rank2] hi"]


SPEAK = """
    import os, sys
    print("out", os.environ["RANK"])
    print("err", os.environ["RANK"], file=sys.stderr)
"""


def test_redirects_and_tee(tmp_path):
    logs = tmp_path / "logs"
    path = program(tmp_path, SPEAK)
    options = ["--nproc-per-node=2", f"--log-dir={logs}", "--rdzv-id=id"]
    done = launch(*options, "-r", "1", "-t", "1:2", path)
    assert done.returncode == 0
    assert done.stdout == ""
    assert sorted(done.stderr.splitlines()) == ["[rank0] err 0", "[rank1] err 1"]
    files = {
        str(file.relative_to(logs)): file.read_text() for file in logs.rglob("*.log")
    }
    assert files == {
        "id/attempt_0/0/stdout.log": "out 0\n",
        "id/attempt_0/1/stdout.log": "out 1\n",
        "id/attempt_0/1/stderr.log": "err 1\n",
    }


def test_launchers_started_together_do_not_clash(tmp_path):
    path = program(tmp_path, "import os; print(os.environ['MASTER_PORT'])")
    command = [sys.executable, "-m", "allhands.run", path]
    jobs = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        for _ in range(8)
    ]
    results = [(*job.communicate(timeout=LIMIT), job.returncode) for job in jobs]
    assert [(err, code) for _, err, code in results] == [(b"", 0)] * 8


CALM = """
    import pathlib, sys
    from allhands import _C, run

    def figures(folder, *, rehearse):
        if rehearse:
            pathlib.Path(folder).mkdir()
            pathlib.Path(folder, "figures").touch()

    _C.figures = figures
    sys.exit(run.main())
"""


@pytest.mark.parametrize(("calibration", "num_found"), [("yes", 2), ("no", 0)])
def test_finds_the_figures_of_the_host_before_the_ranks_start(
    calibration, num_found, tmp_path
):
    """A rehearsal finds none where the host is busy; so here its part is played."""
    program(tmp_path, CALM, "calm.py")
    figures = tmp_path / "allhands" / "figures"
    path = program(tmp_path, f"import os; print(os.path.exists({str(figures)!r}))")
    env = environment(
        PYTHONPATH=str(tmp_path),
        XDG_RUNTIME_DIR=str(tmp_path),
        ALLHANDS_CALIBRATION=calibration,
    )
    done = launch("-n", "2", path, module="calm", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("True") == num_found


def test_a_calibration_is_yes_or_no(tmp_path):
    env = environment(ALLHANDS_CALIBRATION="maybe")
    done = launch("-n", "2", program(tmp_path, ""), env=env)
    assert done.returncode == 2
    assert "it must be yes or no" in done.stderr
