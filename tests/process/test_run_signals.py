"""Signals to the launcher reach the ranks, and nothing that they started is left."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from harness.launcher import (
    environment,
    is_alive,
    launch,
    launched,
    program,
    read_until,
    wait_until,
)
from harness.ranks import LIMIT

# A child in the rank's group, one in a session of its own, one without environment.
FAMILY = """
    import os, subprocess, time
    sleep = ["sleep", "999"]
    children = [
        subprocess.Popen(sleep),
        subprocess.Popen(sleep, start_new_session=True),
        subprocess.Popen(sleep, env={}),
    ]
    print("pids", os.getpid(), *[child.pid for child in children])
"""

# In short sleeps: Python notices a signal that comes just before a sleep at its end.
STAY = """
    while True:
        time.sleep(0.05)
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"])
def test_nothing_is_left(tmp_path, name):
    with launched("--nproc-per-node=2", program(tmp_path, FAMILY + STAY)) as job:
        lines = read_until(job, 2, "pids")
        pids = [int(word) for line in lines for word in line.split()[2:]]
        assert len(pids) == 8
        assert all(is_alive(pid) for pid in pids)
        number = getattr(signal, name)
        job.send_signal(number)
        job.communicate(timeout=LIMIT)
        assert job.returncode == (-9 if name == "SIGKILL" else 128 + number)
        wait_until(lambda: not any(map(is_alive, pids)), 5, f"end of {pids}")


def test_nothing_is_left_of_a_rank_that_was_just_being_started(tmp_path):
    """The launcher is killed between fork and exec, and exec comes late."""
    text = """
        import os, signal, sys, time, types
        from allhands import run
        from allhands.elastic import start

        class SlowPopen:
            def __init__(self, command, env, **_):
                launcher = os.getpid()
                if os.fork():
                    os.kill(launcher, signal.SIGKILL)
                os.setsid()
                os.closerange(3, os.sysconf("SC_OPEN_MAX"))
                while os.getppid() == launcher:
                    time.sleep(0.01)
                print("forked", os.getpid(), flush=True)
                time.sleep(1)  # many times the pause between the guard's looks
                os.execvpe(command[0], command, env)

        start.subprocess = types.SimpleNamespace(Popen=SlowPopen, DEVNULL=None)
        run.main()
    """
    path = program(tmp_path, text, "launcher.py")
    command = [sys.executable, path, "--no-python", "/bin/sleep", "999"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment()
    ) as job:
        [_, pid] = job.stdout.readline().split()
        assert job.wait(LIMIT) == -signal.SIGKILL
    try:
        wait_until(lambda: not is_alive(int(pid)), 20, f"end of {pid}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_a_good_end_leaves_nothing(tmp_path):
    path = program(tmp_path, FAMILY)
    with launched(path) as job:
        [line] = read_until(job, 1, "pids")
        job.communicate(timeout=LIMIT)
        assert job.returncode == 0
        pids = [int(word) for word in line.split()[2:]]
        assert len(pids) == 4
        assert not any(map(is_alive, pids))


def test_user_signals_are_passed_on(tmp_path):
    text = """
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: print("got USR1"))
        signal.signal(signal.SIGUSR2, lambda *_: sys.exit(0))
        print("ready")
        while True:
            time.sleep(0.05)
    """
    with launched("--nproc-per-node=2", program(tmp_path, text)) as job:
        read_until(job, 2, "ready")
        job.send_signal(signal.SIGUSR1)
        read_until(job, 2, "got USR1")
        job.send_signal(signal.SIGUSR2)
        output, _ = job.communicate(timeout=LIMIT)
        assert (job.returncode, output) == (0, "")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_ranks_may_end_in_their_own_way(tmp_path, name):
    text = f"""
        import signal, sys, time
        def save(*_):
            print("saved")
            sys.exit(0)
        signal.signal(signal.{name}, save)
        print("ready")
        while True:
            time.sleep(0.05)
    """
    with launched("--nproc-per-node=2", program(tmp_path, text)) as job:
        read_until(job, 2, "ready")
        job.send_signal(getattr(signal, name))
        output, _ = job.communicate(timeout=LIMIT)
        assert sorted(output.splitlines()) == ["[rank0] saved", "[rank1] saved"]
        assert job.returncode == 0


STUBBORN = """
    import signal, sys, time
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: print("not yet"))
    print("ready")
    while True:
        time.sleep(0.05)
"""


def test_second_interrupt_kills_at_once(tmp_path):
    with launched("--nproc-per-node=2", program(tmp_path, STUBBORN)) as job:
        read_until(job, 2, "ready")
        job.send_signal(signal.SIGINT)
        read_until(job, 2, "not yet")
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(0.3)  # a second one before that would be the same Ctrl-C
        job.send_signal(signal.SIGINT)
        output, _ = job.communicate(timeout=LIMIT)
        assert job.returncode == 130
        assert "ended by SIGINT; still running and killed: rank 0, 1" in output


def test_after_an_interrupt_while_ranks_stop_there_is_no_other_attempt(tmp_path):
    os.mkfifo(tmp_path / "ready")
    text = """
        import os, signal, sys, time
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
            sys.exit()
        if os.environ["RANK"] == "0":
            open(sys.argv[1]).close()
            sys.exit(7)
        signal.signal(signal.SIGTERM, lambda *_: print("deaf", flush=True))
        open(sys.argv[1], "w").close()
        while True:
            time.sleep(0.05)
    """
    options = ["--nproc-per-node=2", "--max-restarts=1", f"--shutdown-timeout={LIMIT}"]
    path = program(tmp_path, text)
    with launched(*options, path, str(tmp_path / "ready")) as job:
        read_until(job, 1, "deaf")
        job.send_signal(signal.SIGINT)
        output, _ = job.communicate(timeout=LIMIT)
    assert job.returncode == 7
    assert "rank 0 failed: exit code 7" in output
    assert "start again" not in output


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (["--shutdown-timeout=0.3"], {}),
        ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "0.3"}),
    ],
)
def test_stubborn_ranks_are_killed_after_the_limit(tmp_path, options, variables):
    path = program(tmp_path, STUBBORN)
    with launched(*options, path, **variables) as job:
        read_until(job, 1, "ready")
        job.send_signal(signal.SIGTERM)
        output, _ = job.communicate(timeout=LIMIT)
        assert job.returncode == 143
        assert "still running and killed: rank 0" in output


def test_many_ranks_that_had_to_be_killed_are_a_short_line(tmp_path):
    path = program(tmp_path, STUBBORN)
    with launched("-n6", "--shutdown-timeout=0.3", path) as job:
        read_until(job, 6, "ready")
        job.send_signal(signal.SIGTERM)
        output, _ = job.communicate(timeout=LIMIT)
    assert output.splitlines()[-1] == (
        "allhands run: ended by SIGTERM; still running and killed: rank 0, 1, 2, 3, "
        "... (6 ranks)"
    )


def ignore_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@pytest.mark.parametrize("options", [[], ["--preload=json"]])
def test_exit_codes_are_told_where_the_launcher_got_sigchld_ignored(tmp_path, options):
    path = program(tmp_path, "import sys; sys.exit(3)")
    done = launch(*options, path, preexec_fn=ignore_children)
    assert done.returncode == 3
    assert "rank 0 failed: exit code 3" in done.stderr


def test_a_launcher_whose_signals_c_code_handles_ends_well(tmp_path):
    text = """
        import ctypes, signal, sys
        from allhands import run

        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)
        ctypes.CDLL(None).signal(signal.SIGUSR2, handler)
        # As where Python starts in a process that has this handler already.
        del sys.modules["_signal"]
        import _signal
        assert signal.getsignal(signal.SIGUSR2) is None
        run.main()
    """
    path = program(tmp_path, text, "launcher.py")
    command = [sys.executable, path, "--no-python", "/bin/echo", "good"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=LIMIT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[rank0] good\n"


def test_a_reader_that_leaves_ends_the_job(tmp_path):
    text = """
        import time
        while True:
            print("y")
            time.sleep(0.001)
    """
    with launched("--nproc-per-node=2", program(tmp_path, text)) as job:
        read_until(job, 1, "y")
        assert job.stdout is not None
        job.stdout.close()
        assert job.wait(LIMIT) == 128 + signal.SIGPIPE


def test_a_full_disk_ends_the_job_with_a_reason(tmp_path):
    path = program(tmp_path, "import time\nprint('y')\ntime.sleep(999)")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "allhands.run", "-n", "2", path],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT,
            env=environment(),
        )
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == (
        "allhands run: stdout takes no more output: No space left on device; the job "
        "was ended, as where nobody reads its output\n"
    )


def test_signals_act_while_nobody_reads_the_output(tmp_path):
    text = """
        import os
        print("pid", os.getpid())
        while True:
            print("x" * 1000)
    """
    with launched("--shutdown-timeout=1", program(tmp_path, text)) as job:
        (line,) = read_until(job, 1, "pid")
        # The pipe to us is full soon, and stays full.
        job.send_signal(signal.SIGTERM)
        assert job.wait(LIMIT) == 143
        assert not is_alive(int(line.split()[2]))
