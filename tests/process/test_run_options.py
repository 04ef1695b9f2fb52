"""Options of torchrun for signals, for GPUs, and for lines that are picked out."""

import signal
import subprocess
import sys

import pytest

from harness.launcher import environment, launch, launched, program, read_until
from harness.nodes import launched_nodes
from harness.ranks import LIMIT

WAIT = """
    import signal, time
    signal.signal(signal.SIGUSR1, lambda *_: print("got USR1"))
    print("ready")
    while True:
        time.sleep(999)
"""


def test_signals_that_the_user_names_end_the_job(tmp_path):
    options = ["--signals-to-handle=SIGUSR1", "--shutdown-timeout=0.5", "-n2"]
    with launched(*options, program(tmp_path, WAIT)) as job:
        read_until(job, 2, "ready")
        job.send_signal(signal.SIGUSR1)
        out, _ = job.communicate(timeout=LIMIT)
        assert job.returncode == 128 + signal.SIGUSR1
    lines = out.splitlines()
    assert sorted(lines[:2]) == ["[rank0] got USR1", "[rank1] got USR1"]
    assert lines[2:] == [
        "allhands run: ended by SIGUSR1; still running and killed: rank 0, 1"
    ]


def test_signals_that_the_user_leaves_out_do_what_they_do_anywhere(tmp_path):
    with launched("--signals-to-handle=SIGINT", program(tmp_path, WAIT)) as job:
        read_until(job, 1, "ready")
        job.send_signal(signal.SIGTERM)
        out, _ = job.communicate(timeout=LIMIT)  # the guard has ended the rank
        assert (job.returncode, out) == (-signal.SIGTERM, "")


def test_a_signal_that_the_user_names_goes_to_the_ranks_of_all_nodes(tmp_path):
    text = """
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit(print("got USR1")))
        print("ready")
        while True:
            time.sleep(0.05)
    """
    path = program(tmp_path, text)
    with launched_nodes([1, 1], "--signals-to-handle=SIGUSR1", path) as job:
        for node in range(2):
            job.read_until(node, "ready")
        job.nodes[1].send_signal(signal.SIGUSR1)
        ended = job.end()
    assert [(end.code, end.stdout) for end in ended] == [
        (0, f"[rank{node}] got USR1\n") for node in range(2)
    ]


GPUS = """
    import os
    names = "RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES"
    print(*(os.environ.get(name) for name in names))
"""


def gpus(path, *options, **variables):
    """What GPUS printed on each rank."""
    env = environment(**variables)
    if "CUDA_VISIBLE_DEVICES" not in variables:
        env.pop("CUDA_VISIBLE_DEVICES", None)
    done = launch("-n2", *options, path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(line.partition("] ")[2] for line in done.stdout.splitlines())


@pytest.mark.parametrize("preload", [(), ("--preload=json",)])
def test_a_virtual_local_rank_shows_each_rank_one_gpu(tmp_path, preload):
    path = program(tmp_path, GPUS)
    options = ["--virtual-local-rank", *preload]
    assert gpus(path, *options) == ["0 0 0", "1 0 1"]
    chosen = gpus(path, *options, CUDA_VISIBLE_DEVICES="5,GPU-b,7")
    assert chosen == ["0 0 5", "1 0 GPU-b"]


def test_gpus_are_left_alone_otherwise(tmp_path):
    path = program(tmp_path, GPUS)
    assert gpus(path) == ["0 0 None", "1 1 None"]
    assert gpus(path, CUDA_VISIBLE_DEVICES="5,6") == ["0 0 5,6", "1 1 5,6"]


def test_too_few_gpus_are_one_error_before_ranks_start(tmp_path):
    env = environment(CUDA_VISIBLE_DEVICES="5,6")
    path = program(tmp_path, GPUS)
    done = launch("-n3", "--virtual-local-rank", path, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "CUDA_VISIBLE_DEVICES is '5,6', which names 2; with a virtual" in done.stderr


LINES = """
    import os, sys
    rank = os.environ["RANK"]
    print("an apple,", rank)
    print("a pear", rank)
    print("an orange", rank, end="")
    print("an apple on stderr", rank, file=sys.stderr)
"""


def test_lines_with_a_word_also_go_to_one_file(tmp_path):
    logs = tmp_path / "logs"
    done = launch(
        *("-n2", "--tee=3", f"--log-dir={logs}", "--rdzv-id=id"),
        *("--duplicate-stdout-filters=apple,,,orange", program(tmp_path, LINES)),
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 6
    found = (logs / "id" / "attempt_0" / "filtered_stdout.log").read_text()
    assert sorted(found.splitlines()) == [
        f"[rank{n}] {text}"
        for n in range(2)
        for text in (f"an apple, {n}", f"an orange {n}")
    ]
    assert not (logs / "id" / "attempt_0" / "filtered_stderr.log").exists()


def test_the_environment_says_how_lines_begin(tmp_path):
    variable = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "$role_name-$rank> "}
    logs = tmp_path / "logs"
    done = launch(
        *("-n2", "--tee=3", f"--log-dir={logs}", "--rdzv-id=id", "--role=r"),
        *("--duplicate-stdout-filters=pear", program(tmp_path, LINES)),
        env=environment(**variable),
    )
    assert done.returncode == 0
    assert {line[:4] for line in done.stdout.splitlines()} == {"r-0>", "r-1>"}
    found = (logs / "id" / "attempt_0" / "filtered_stdout.log").read_text()
    assert sorted(found.splitlines()) == ["r-0> a pear 0", "r-1> a pear 1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--duplicate-stderr-filters=a", "--tee=1"],
            "filters for stderr are given (a), and no rank's stderr goes to a file and",
        ),
        (["--signals-to-handle=SIGFOO"], "'SIGFOO' is no signal that can be handled"),
        (["--signals-to-handle=SIGINT,SIGKILL"], "'SIGKILL' is no signal that can be"),
    ],
)
def test_what_cannot_be_is_said(options, message):
    done = launch(*options, "--no-python", "/bin/echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_program_may_ask_for_the_same(tmp_path):
    text = f"""
        import os
        from allhands.elastic.multiprocessing import DefaultLogsSpecs, Std
        from allhands.launcher import LaunchConfig, elastic_launch

        def work():
            print("apple", os.environ["LOCAL_RANK"])

        if __name__ == "__main__":
            specs = DefaultLogsSpecs({str(tmp_path / "logs")!r}, tee=Std.OUT)
            config = LaunchConfig(
                1, 1, 2, specs, "id", signals_to_handle="SIGUSR1",
                duplicate_stdout_filters=["apple"], virtual_local_rank=True,
            )
            elastic_launch(config, work)()
    """
    done = subprocess.run(
        [sys.executable, program(tmp_path, text)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = tmp_path / "logs" / "id" / "attempt_0" / "filtered_stdout.log"
    lines = sorted(found.read_text().splitlines())
    assert lines == sorted(done.stdout.splitlines())
    assert lines == ["[rank0] apple 0", "[rank1] apple 0"]
