"""The command line of the launcher, without starting anything."""

import os
import signal
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from allhands import run
from allhands.elastic.agent import Outcome
from allhands.elastic.logs import DefaultLogsSpecs, Std
from allhands.launcher import LaunchConfig, launching, num_ranks


def test_spellings_and_defaults():
    args = run.parse_args(["--nproc_per_node=2", "--max-restarts", "3", "x.py", "-m"])
    assert (args.nproc_per_node, args.max_restarts) == ("2", 3)
    assert (args.training_script, args.training_script_args) == ("x.py", ["-m"])
    assert not args.module
    assert (args.master_port, args.shutdown_timeout) == (0, None)


@pytest.mark.parametrize(
    "given", ["-n 3", "--nproc 3", "--nproc=3", "--nproc-per-node 3"]
)
def test_spellings_of_the_number_of_ranks(given):
    assert run.parse_args([*given.split(), "x.py"]).nproc_per_node == "3"


def test_accepts_what_only_matters_between_hosts():
    options = "--standalone --rdzv-backend=c10d --rdzv-endpoint=h:1 --rdzv-conf=a=1"
    more = "--local-addr=h --start-method=spawn --monitor-interval=1 --node-rank=0"
    more += " --event-log-handler=console"
    assert run.parse_args([*options.split(), *more.split(), "x.py"]).standalone


def test_defaults_from_the_environment(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "5")
    monkeypatch.setenv("PET_MAX_RESTARTS", "2")
    monkeypatch.setenv("PET_TEE", "0:1")
    monkeypatch.setenv("PET_MODULE", "1")
    monkeypatch.setenv("PET_NO_PYTHON", "0")
    args = run.parse_args(["--nproc-per-node=3", "x"])
    assert (args.nproc_per_node, args.max_restarts) == ("3", 2)
    assert args.tee == {0: Std.OUT}
    assert (args.module, args.no_python) == (True, False)


def test_number_of_ranks():
    num_cores = len(os.sched_getaffinity(0))
    assert run.determine_local_world_size("3") == 3
    assert run.determine_local_world_size("cpu") == num_cores


def test_gpus_that_cannot_be_counted(monkeypatch):
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(num_ranks.ctypes, "CDLL", missing)
    with pytest.raises(ValueError, match=r"cannot count GPUs: there is no CUDA driver"):
        run.determine_local_world_size("gpu")
    num_cores = len(os.sched_getaffinity(0))
    assert run.determine_local_world_size("auto") == num_cores


def test_the_folder_of_records_is_there_only_while_a_signal_ends_nothing(
    monkeypatch, tmp_path
):
    """Neither while the nodes meet nor while they leave, which take minutes."""
    seen = []
    met, folder_within = launching.alone, launching.folder_within

    def note(what):
        is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        seen.append((what, is_default, len(os.listdir(tmp_path))))

    @contextmanager
    def watched_met(*arguments):
        note("begin to meet")
        with met(*arguments) as meeting:
            note("met")
            yield meeting
            note("leave")

    @contextmanager
    def watched_folder(parent):
        note("before")
        with folder_within(parent) as folder:
            yield folder
        note("after")

    agent = SimpleNamespace(
        run=lambda: note("run") or Outcome(0, ["over"], []),
        tell=lambda lines: note(*lines),
    )
    monkeypatch.setattr(launching, "alone", watched_met)
    monkeypatch.setattr(launching, "folder_within", watched_folder)
    monkeypatch.setattr(launching, "Agent", lambda *arguments: agent)
    monkeypatch.setenv("ALLHANDS_SECRET", "kept")
    assert run.run(run.parse_args([f"--dumps={tmp_path}", "--no-python", "true"])) == 0
    assert seen == [
        ("begin to meet", True, 0),
        ("met", False, 0),
        ("before", False, 0),
        ("run", False, 1),
        ("over", False, 1),
        ("after", False, 0),
        ("leave", False, 0),
    ]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_configuration_says_what_a_command_line_does(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "$rank ")
    path = tmp_path / "x.py"
    path.touch()
    given = (
        "--nnodes=2 --node-rank=1 --master-addr=h --master-port=5 -n3 --role=r "
        "--rdzv-id=id --rdzv-conf=timeout=7 --max-restarts=2 --monitor-interval=3 "
        f"--log-dir={tmp_path} --tee=3 --redirects=0:1 --local-ranks-filter=0,2 "
        "--duplicate-stdout-filters=a,b --signals-to-handle=SIGUSR1,SIGTERM "
        "--shutdown-timeout=4 --virtual-local-rank --start-method=fork"
    )
    args = run.parse_args([*given.split(), str(path), "--epochs", "5"])
    config, program, arguments = run.config_from_args(args)
    assert (program, arguments) == (sys.executable, ["-u", str(path), "--epochs", "5"])
    assert config == LaunchConfig(
        min_nodes=2,
        max_nodes=2,
        nproc_per_node=3,
        logs_specs=DefaultLogsSpecs(
            str(tmp_path), {0: Std.OUT}, Std.ALL, frozenset({0, 2})
        ),
        run_id="id",
        role="r",
        rdzv_endpoint="h:5",
        rdzv_backend="static",
        rdzv_configs={"rank": 1, "timeout": 7.0},
        max_restarts=2,
        monitor_interval=3.0,
        log_line_prefix_template="$rank ",
        signals_to_handle="SIGUSR1,SIGTERM",
        duplicate_stdout_filters=["a", "b"],
        duplicate_stderr_filters=[],
        virtual_local_rank=True,
        shutdown_timeout=4.0,
    )


@pytest.mark.parametrize("option", ["--preload=numpy", "--dumps=d", "--replace-gloo"])
def test_what_no_configuration_can_say_is_refused(option, tmp_path):
    path = tmp_path / "x.py"
    path.touch()
    with pytest.raises(ValueError, match=r"no field for --preload.*: use run\(args\)"):
        run.config_from_args(run.parse_args([option, str(path)]))
