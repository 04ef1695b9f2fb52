"""ALLHANDS_TRACE: all that ranks do is written while they do it."""

import json
import subprocess
import sys

import pytest

from allhands.debug import trace_command
from allhands.debug.trace_log import logs_in, read_logs
from harness.launcher import environment, launch, program
from harness.ranks import LIMIT

TRAIN = """
    import json, os, pathlib, signal, time
    import numpy as np
    import allhands as dist

    dist.init_process_group()
    rank = dist.get_rank()

    def num_written():
        [mine] = pathlib.Path(os.environ["ALLHANDS_TRACE"]).glob(f"*_rank_{rank}.*")
        return mine.read_text().count('"state":"completed"')

    for step in range(1, 4):
        for _ in range(50):
            dist.all_reduce(np.ones(2000))
        while num_written() < step * 50:  # the ring has room for 64
            time.sleep(0.01)
    # The launcher's, once rank 1 is dead, which may be at any time after the barrier.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.barrier()
    try:
        with dist.debug.faults("rank=1,do=kill"):
            dist.all_reduce(np.ones(2000))
    except dist.RankFailedError:
        print("lost a rank")
"""


def test_what_a_killed_rank_did_is_written(tmp_path, capsys):
    """More than the flight recorder keeps, and what the others then failed in."""
    folder = tmp_path / "trace"
    path = program(tmp_path, TRAIN)
    variables = {"ALLHANDS_TRACE": str(folder), "ALLHANDS_RECORD_LENGTH": "64"}
    env = environment(**variables)
    done = launch("--nproc-per-node=2", path, env=env)
    assert (done.returncode, done.stdout) == (137, "[rank0] lost a rank\n"), done.stderr
    dumps, lost, _ = read_logs(logs_in(str(folder)))
    assert lost == {}
    ended = {dump.rank: [e.state for e in dump.entries] for dump in dumps}
    assert ended[1][:150] == ended[0][:150] == ["completed"] * 150
    assert ended[0][-1] == "failed"
    numbers = [entry.number for entry in dumps[0].entries]
    assert numbers == list(range(1, 153))

    written = tmp_path / "trace.out"
    assert trace_command.main([str(folder), "-o", str(written)]) == 0
    assert "2 ranks, 30" in capsys.readouterr().out
    events = json.loads(written.read_text())["traceEvents"]
    assert sum(event["ph"] == "f" for event in events) >= 150


ALONE = """
    import os, resource, sys, threading, warnings
    import numpy as np
    import allhands as dist

    def work():
        for _ in range(10):
            dist.all_reduce(np.ones(2000))

    dist.init_process_group()
    dist.destroy_process_group()
    assert threading.active_count() == 1  # no thread meets the interpreter's end
    dist.init_process_group()
    work()
    with warnings.catch_warnings():  # there are threads: Python 3.12 says so
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    group = dist.new_group([0])
    dist.all_reduce(np.ones(2000), group=group)
    if sys.argv[1:]:  # the disk is full
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    work()
    dist.destroy_process_group(group)
    work()
    print("done")
"""


def alone(tmp_path, folder, *arguments, **variables):
    command = [sys.executable, program(tmp_path, ALONE), *arguments]
    env = environment(ALLHANDS_TRACE=str(folder), **variables)
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    return done.stderr


def test_each_world_has_its_own_until_its_end(tmp_path):
    assert alone(tmp_path, tmp_path / "new" / "folder") == ""
    dumps, lost, _ = read_logs(logs_in(str(tmp_path / "new" / "folder")))
    assert lost == {}
    assert len({dump.world for dump in dumps}) == len(dumps) == 2
    none, some = sorted((dump.entries for dump in dumps), key=len)
    assert none == ()
    assert [entry.state for entry in some] == ["completed"] * 31
    groups = [entry.group for entry in some]
    assert groups.count("0") == 30


AMID_A_LINE = """
    import signal
    import numpy as np
    import allhands as dist
    from allhands.debug import tracer
    from allhands.debug.trace_log import TraceLog

    tracer._LEAST_PAUSE = 999.0  # its thread writes nothing

    def leave(*_):
        print("leaves", flush=True)
        dist.destroy_process_group()

    def add(log, lines):
        if dist.is_initialized() and len(lines) > 2:  # those of `group`, which ends
            signal.raise_signal(signal.SIGUSR1)
        write(log, lines)

    dist.init_process_group()
    group = dist.new_group()
    other = dist.new_group()
    dist.all_reduce(np.ones(2000), group=other)
    signal.signal(signal.SIGUSR1, leave)
    write, TraceLog.add = TraceLog.add, add
    signal.alarm(10)  # locked out, no other handler comes to its turn
    for _ in range(3):
        dist.all_reduce(np.ones(2000), group=group)
    dist.destroy_process_group(group)
    print("left", dist.is_initialized())
"""


def test_a_handler_may_destroy_the_world_amid_a_line(tmp_path):
    folder = tmp_path / "trace"
    done = subprocess.run(
        [sys.executable, program(tmp_path, AMID_A_LINE)],
        env=environment(ALLHANDS_TRACE=str(folder)),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.stdout, done.stderr) == ("leaves\nleft False\n", "")
    [dump], _, _ = read_logs(logs_in(str(folder)))
    assert [entry.group for entry in dump.entries] == ["2"]  # the file was closed


def test_where_nothing_is_recorded_that_is_said(tmp_path):
    said = alone(tmp_path, tmp_path / "trace", ALLHANDS_RECORD_LENGTH="0")
    told = "ALLHANDS_RECORD_LENGTH=0 keeps no operation\n"
    worlds = 2
    assert said.count(told) == said.count("\n") == worlds
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("folder", "arguments", "problem"),
    [
        ("/dev/null/folder", [], "Not a directory"),
        ("trace", ["full"], "File too large"),
    ],
)
def test_where_nothing_can_be_written_the_job_goes_on(
    tmp_path, folder, arguments, problem
):
    said = alone(tmp_path, tmp_path / folder, *arguments)
    told = "[rank0] trace: rank 0 writes no trace from here on, and goes on without: "
    worlds = 1 if arguments else 2
    assert said.count(told) == said.count("\n") == said.count(problem) == worlds
    if arguments:
        dumps = read_logs(logs_in(str(tmp_path / folder))).dumps
        assert max(len(dump.entries) for dump in dumps) < 15
