"""The launcher's last lines name what failed, and its exit code is the rank's."""

import json
import pathlib
import re
import socket
import time

import pytest

from harness.launcher import environment, launch, program

# Every rank but number 2 waits to be stopped.
WAIT = """
    import os, sys, time
    rank = int(os.environ["RANK"])
    if rank != 2:
        time.sleep(999)
"""


def fail(tmp_path, text: str, *options: str, size: int = 4):
    """Run a job whose rank 2 executes `text`; returns exit code and last 15 lines."""
    path = program(tmp_path, WAIT + text)
    done = launch(f"--nproc-per-node={size}", *options, path)
    return done.returncode, "\n".join(done.stderr.splitlines()[-15:])


def test_exception_is_named_with_its_place(tmp_path):
    text = """
    def step(value):
        raise ValueError(f"bad value {value}")

    step(17)
"""
    code, last = fail(tmp_path, text)
    assert code == 1
    assert "allhands run: rank 2 failed: ValueError: bad value 17" in last
    assert f'at {tmp_path}/train.py:8, in step: raise ValueError(f"bad' in last
    assert f"on host {socket.gethostname()}, pid " in last
    assert last.splitlines()[-1] == "  3 others stopped because of rank 2"


def test_frame_is_the_users_not_the_librarys(tmp_path):
    code, last = fail(tmp_path, '\n    import json\n    json.loads("{")\n')
    assert code == 1
    assert "rank 2 failed: json.decoder.JSONDecodeError: Expecting property" in last
    assert f"at {tmp_path}/train.py:8, in <module>" in last


def test_exit_code_without_traceback_is_said(tmp_path):
    text = '\n    print("giving up", file=sys.stderr)\n    sys.exit(3)\n'
    code, last = fail(tmp_path, text)
    assert code == 3
    assert "rank 2 failed: exit code 3" in last
    assert "no traceback; last line on its stderr: giving up" in last


@pytest.mark.parametrize(
    ("name", "number"), [("SIGKILL", 9), ("SIGSEGV", 11), ("SIGABRT", 6)]
)
def test_signal_is_named(tmp_path, name, number):
    text = f"\n    import signal\n    os.kill(os.getpid(), signal.{name})\n"
    code, last = fail(tmp_path, text, size=3)
    assert code == 128 + number
    assert f"rank 2 failed: killed by {name}" in last
    assert ("out-of-memory" in last) == (name == "SIGKILL")


def test_stderr_in_a_file_is_read_there(tmp_path):
    logs = tmp_path / "logs"
    text = '\n    raise KeyError("nobody")\n'
    code, last = fail(tmp_path, text, f"--log-dir={logs}", "--redirects=3", size=3)
    assert code == 1
    assert "rank 2 failed: KeyError: 'nobody'" in last
    (path,) = re.findall(r"its stderr: (.+)", last)
    assert "KeyError" in pathlib.Path(path).read_text()


def test_a_rank_that_only_followed_is_not_blamed(tmp_path):
    """Rank 0 ends because of rank 2, which ends later; the launcher has time enough."""
    text = """
        import os, sys, time
        from allhands import RankFailedError
        rank, flag = int(os.environ["RANK"]), sys.argv[1]
        if rank == 0:
            with open(f"{flag}.new", "w") as file:
                file.write(f"/proc/{os.getpid()}/stat")
            os.rename(f"{flag}.new", flag)
            raise RankFailedError("all_reduce #1: rank 2 is gone")
        if rank == 1:
            time.sleep(999)
        while not os.path.exists(flag):
            time.sleep(0.01)
        path = open(flag).read()
        while os.path.exists(path) and ") Z " not in open(path).read():
            time.sleep(0.01)
        raise ValueError("the cause")
    """
    launcher = """
        from allhands import run
        from allhands.elastic import worker_group

        worker_group._SETTLE_S = 150
        run.main()
    """
    program(tmp_path, launcher, "settling.py")
    done = launch(
        "--nproc-per-node=3",
        program(tmp_path, text),
        str(tmp_path / "flag"),
        module="settling",
        env=environment(PYTHONPATH=str(tmp_path)),
    )
    last = "\n".join(done.stderr.splitlines()[-15:])
    assert "rank 2 failed: ValueError: the cause" in last
    assert "1 more failed after it: rank 0 (RankFailedError)" in last
    assert "1 other stopped because of rank 2" in last


def test_a_loss_that_no_rank_caused_is_told_in_a_short_line(tmp_path):
    """The rank that is gone ended well, so the others' errors are all there is."""
    text = """
        import allhands as dist
        dist.init_process_group()
        dist.barrier()
        dist.barrier()
    """
    faults = environment(ALLHANDS_FAULTS="rank=1,op=barrier,nth=2,do=exit:0")
    done = launch("--nproc-per-node=2", program(tmp_path, text), env=faults)
    start = done.stderr.index("allhands run: ")
    head, call, place, *rest = done.stderr[start:].splitlines()
    assert re.fullmatch(
        r"allhands run: rank 0 failed: RankFailedError: rank 1 \(pid \d+\) died", head
    )
    assert call == "    in barrier() #2 on group '0'; rank 1 was last in barrier #1"
    assert place == f"  at {tmp_path}/train.py:5, in <module>: dist.barrier()"
    assert rest[-1] == "  ended before it, with exit code 0: rank 1"


def test_restarts_begin_all_ranks_again(tmp_path):
    text = """
        import os, sys
        count = os.environ["TORCHELASTIC_RESTART_COUNT"]
        print("attempt", count, os.environ["MASTER_PORT"])
        if count != "2" and os.environ["RANK"] == "0":
            sys.exit(5)
    """
    done = launch("--nproc-per-node=2", "--max-restarts=3", program(tmp_path, text))
    assert done.returncode == 0
    ports = set(re.findall(r"attempt \d (\d+)", done.stdout))
    assert len(ports) == 1  # the same store all the time
    assert done.stdout.count("attempt 2") == 2
    assert "attempt 3" not in done.stdout
    assert [line.rpartition("(")[2] for line in done.stderr.splitlines()] == [
        "restart 1 of 3)",
        "restart 2 of 3)",
    ]


def test_restarts_run_out(tmp_path):
    path = program(tmp_path, "import sys; sys.exit(4)")
    done = launch("--max-restarts=1", path)
    assert done.returncode == 4
    assert "rank 0 failed: exit code 4; all ranks start again" in done.stderr
    assert "allhands run: rank 0 failed: exit code 4\n" in done.stderr


def test_stubborn_ranks_are_killed_after_the_limit(tmp_path):
    text = """
        import os, signal, sys, time
        if os.environ["RANK"] == "0":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(sys.argv[1], "w").close()
            time.sleep(999)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        sys.exit(3)
    """
    path = program(tmp_path, text)
    options = ["--nproc-per-node=2", "--shutdown-timeout=0.2"]
    done = launch(*options, path, str(tmp_path / "flag"))
    assert done.returncode == 3
    assert "rank 1 failed: exit code 3" in done.stderr


def test_much_output_is_not_held_in_memory(tmp_path):
    text = """
        import sys
        line = "x" * 1023 + "\\n"
        for _ in range(150):
            sys.stdout.write(line * 1024)
        with open(f"/proc/{__import__('os').getppid()}/status") as file:
            peak = next(line for line in file if line.startswith("VmHWM"))
        print(peak, file=sys.stderr)
    """
    path = program(tmp_path, text)
    done = launch(path, env=environment())
    assert len(done.stdout) == 150 * 1024 * (1024 + len("[rank0] "))
    peak_mb = int(re.findall(r"(\d+) kB", done.stderr)[0]) / 1024
    assert peak_mb < 150


ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        ("raise ValueError(17)", "ValueError: 17", 1),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL", 137),
    ],
    ids=["exception", "signal"],
)
def test_the_error_file_has_the_first_failure(tmp_path, text, said, code):
    """And no rank can write over it: it does not know the path."""
    target = tmp_path / "error.json"
    target.write_text("of an earlier run")
    path = program(
        tmp_path, f"{WAIT}\n    assert '{ERROR_FILE}' not in os.environ; {text}"
    )
    before = int(time.time())
    done = launch(
        *("--nproc-per-node=3", path),
        env=environment(**{ERROR_FILE: str(target)}),
    )
    assert done.returncode == code
    message = json.loads(target.read_text())["message"]
    assert (message["message"], message["errorCode"]) == (said, code)
    assert before <= int(message["extraInfo"]["timestamp"]) <= time.time()
    stderr = message["extraInfo"]["py_callstack"]
    assert stderr.endswith(f"\n{said}\n") if code == 1 else stderr == ""


def test_there_is_no_error_file_of_a_good_job(tmp_path):
    target, path = tmp_path / "error.json", program(tmp_path, "")
    done = launch(path, env=environment(**{ERROR_FILE: str(target)}))
    assert done.returncode == 0
    assert not target.exists()


def test_an_error_file_that_cannot_be_written_is_told(tmp_path):
    target, path = tmp_path / "none" / "error.json", program(tmp_path, "1 / 0")
    done = launch(path, env=environment(**{ERROR_FILE: str(target)}))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("allhands run: no error file: [Errno 2]")
