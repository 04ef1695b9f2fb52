"""`allhands top` of jobs that run, which were told nothing before."""

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
import uuid

from harness.launcher import environment, launched, program, read_until, wait_until
from harness.pace import patient
from harness.ranks import LIMIT

TOP = (sys.executable, "-m", "allhands", "top")

COUNTED = """
    import os, sys, time
    import numpy as np
    import allhands as dist

    dist.init_process_group()
    rank = dist.get_rank()
    group = dist.new_group([0, 1])
    for _ in range(100):
        dist.all_reduce(np.ones(10))
    if rank < 2:
        for _ in range(7):
            dist.broadcast(np.ones(4, np.float32), 0, group=group)
    if rank == 0:
        dist.send(np.ones(1), 2)
    if rank == 2:
        dist.recv(np.ones(1), 0)
    dist.barrier()
    if rank == 1:
        print("pid", os.getpid(), flush=True)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
    dist.barrier()
    print("done", flush=True)
"""


def top(*arguments, stdout=subprocess.PIPE):
    told = subprocess.run(
        [*TOP, *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        check=False,
    )
    return told.returncode, told.stdout, told.stderr


def rows_of(job, interval=0.3):
    code, out, error = top(job, "--once", "--json", f"--interval={interval}")
    assert code == 0, error
    told = json.loads(out)
    return told, told["ranks"]


def unique(name):
    """A run id that no other job of this host has."""
    return f"{name}-{uuid.uuid4().hex}"


@contextlib.contextmanager
def waiting_job(tmp_path, run_id):
    """Ranks 0 and 2 wait in a barrier for rank 1, whose process id comes with it."""
    flag = tmp_path / "flag"
    path = program(tmp_path, COUNTED)
    options = ("--nproc-per-node=3", f"--rdzv-id={run_id}", "--shutdown-timeout=1")
    with launched(*options, path, str(flag)) as job:
        [line] = [each for each in read_until(job, 1, "pid") if "pid" in each]
        yield job, int(line.split()[-1]), flag


def test_a_job_that_runs_is_counted_as_it_counts_itself(tmp_path):
    run_id = unique("counted")
    with waiting_job(tmp_path, run_id) as (job, pid, flag):
        wait_until(
            lambda: (
                [each["state"] for each in rows_of(run_id)[1]]
                == ["waits", "computes", "waits"]
            ),
            60,
            "ranks 0 and 2 wait",
        )
        for named in (run_id, job.pid, pid):
            told, ranks = rows_of(named)
            assert (told["world_size"], told["ranks_here"]) == (3, 3)
            assert told["looks"] > 0
            assert [each["rank"] for each in ranks] == [0, 1, 2]
            assert ranks[1]["pid"] == pid
        # all_reduce, broadcast, a message, barriers
        begun = [each["num_operations"] for each in ranks]
        assert begun == [100 + 7 + 1 + 2, 100 + 7 + 1, 100 + 1 + 2]
        sizes = [each["num_bytes"] for each in ranks]
        assert sizes == [8000 + 7 * 16 + 8, 8000 + 7 * 16, 8000 + 8]
        for rank in (0, 2):
            assert ranks[rank]["waits_for"] == [1]
            assert ranks[rank]["waiting"] == 1
            assert ranks[rank]["in_communication"] == 1
            operation = ranks[rank]["operation"]
            assert operation["op"] == "barrier"
            assert operation["sequence"] == 102
            assert operation["is_under_way"]
            assert operation["seconds"] > 0
        assert ranks[1]["awaited"] == 1
        assert ranks[1]["in_communication"] == 0
        flag.write_text("")
        read_until(job, 3, "done")
    assert top(run_id, "--once")[0] == 2


def test_stopped_and_dead_ranks_are_told(tmp_path):
    run_id = unique("halted")
    with waiting_job(tmp_path, run_id) as (_, pid, _flag):
        os.kill(pid, signal.SIGSTOP)
        wait_until(
            lambda: rows_of(run_id)[1][1]["state"] == "stopped", 60, "it is stopped"
        )
        process = subprocess.Popen(
            [*TOP, run_id, "--json", "--interval=0.3"],
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        try:
            process.stdout.readline()
            os.kill(pid, signal.SIGKILL)
            states = []
            while "dead" not in states:
                line = process.stdout.readline()
                assert line, "it ended before it told of the death"
                states = [each["state"] for each in json.loads(line)["ranks"]]
            assert states[1] == "dead"
            rest, _ = process.communicate(timeout=LIMIT)  # the launcher ends the others
            last = rest.splitlines()[-1] if rest else line
            assert {each["state"] for each in json.loads(last)["ranks"]} == {"dead"}
            assert process.returncode == 0
        finally:
            process.kill()
            process.wait()


def test_one_of_several_jobs_must_be_named(tmp_path):
    one, two, three = unique("one"), unique("two"), unique("three")
    for name in (one, two):
        (tmp_path / name).mkdir()
    with waiting_job(tmp_path / one, one), waiting_job(tmp_path / two, two):
        code, _, error = top("--once")
        assert code == 2
        assert re.search(r"jobs of yours run here; say which:\n", error)
        assert f"run id {one}" in error
        assert f"run id {two}" in error
        code, _, error = top(three, "--once")
        assert code == 2
        assert f"no job named '{three}' runs here" in error
        code, out, _ = top(one, "--once", "--interval=0.2")
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        assert "3 of 3 ranks on" in out
        with open("/dev/full", "w") as full:
            code, _, error = top(one, "--once", "--interval=0.2", stdout=full)
        assert (code, error) == (
            2,
            "allhands top: [Errno 28] No space left on device\n",
        )
        code, _, error = top(os.getpid(), "--once")  # both are its
        assert code == 2
        # Three, if another test has made a world in this process.
        assert re.search(f"[23] jobs of process {os.getpid()} run here; say", error)
        assert f"run id {one}" in error
        assert f"run id {two}" in error


def test_a_process_without_ranks_is_told_from_none():
    code, _, error = top("999999999", "--once")
    assert (code, error) == (
        2,
        "allhands top: '999999999' is no run id of a job that runs here, and there is "
        "no process 999999999\n",
    )
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as alone:
        code, _, error = top(alone.pid, "--once")
    assert code == 2
    assert f"no job of process {alone.pid} runs here" in error


def test_a_live_table_needs_a_terminal():
    code, _, error = top("1")
    assert code == 2
    assert "use --once" in error
    dumb = Pty("1", TERM="dumb")
    try:
        dumb.read_until("dumb terminal.*use --once")
        assert dumb.process.wait(LIMIT) == 2
    finally:
        dumb.close()


class Pty:
    """The command on a terminal of its own."""

    def __init__(self, *arguments, columns=80, lines=24, TERM="xterm"):
        self._fd, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        self.before = termios.tcgetattr(end)
        self.end = end
        self.output = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.process = subprocess.Popen(
            [*TOP, *arguments],
            stdin=end,
            stdout=end,
            stderr=end,
            env=environment(TERM=TERM),
            start_new_session=True,
        )

    def read_until(self, pattern):
        """What has come since, up to it."""
        begin = time.monotonic()
        while not (found := re.search(pattern, self._plain(), re.S)):
            assert time.monotonic() - begin < patient(60, begin), self.output
            if select.select([self._fd], [], [], 1)[0]:
                self.output += self._decoder.decode(os.read(self._fd, 65536))
        self.output = self._plain()[found.end() :]
        return found

    def _plain(self):
        return re.sub(r"\x1b\[[\d;]*m", "", self.output)  # without colours

    def type(self, text):
        os.write(self._fd, text.encode())

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._fd)
        os.close(self.end)


@contextlib.contextmanager
def on_screen(*arguments, **size):
    screen = Pty(*arguments, "--interval=0.3", **size)
    try:
        yield screen
        # The screen from before is back, and the terminal as it was.
        screen.read_until(r"\x1b\[\?1049l")
        assert screen.process.wait(LIMIT) == 0
        assert termios.tcgetattr(screen.end) == screen.before
    finally:
        screen.close()


def test_the_live_table_is_sorted_by_keys_and_ends(tmp_path):
    run_id = unique("live")
    with waiting_job(tmp_path, run_id):
        with on_screen(run_id) as screen:
            screen.read_until(r"3 of 3 ranks on")
            screen.read_until(r"CPU\s+1 computes")  # others wait for it
            screen.read_until(r"2 waits for 1")
            screen.type("r")
            screen.read_until(r"CPU\s+0 waits for 1")
            screen.type("q")
        with on_screen(run_id, lines=8) as screen:
            found = screen.read_until(r"3 of 3 ranks on.*?(\d) more ranks")
            assert found[1] == "1"
            screen.process.send_signal(signal.SIGINT)
        with on_screen(run_id, "--sort=CPU") as screen:
            screen.read_until(r"3 of 3 ranks on")
            screen.process.terminate()


def test_who_has_seen_enough_may_go(tmp_path):
    """As `allhands top --once | true`."""
    run_id = unique("seen-enough")
    with waiting_job(tmp_path, run_id):
        for option in ("--once", "--json"):
            reading, writing = os.pipe()
            os.close(reading)
            try:
                told = top(run_id, option, "--interval=0.1", stdout=writing)
            finally:
                os.close(writing)
            assert told == (0, None, "")


def test_a_second_sigterm_does_not_disturb_its_end():
    source = """
        import os, signal
        from allhands.debug.top import command

        plain = signal.signal

        def end(*_):
            os.kill(os.getpid(), signal.SIGTERM)

        def restore(number, handler):
            if handler is signal.SIG_DFL:
                end()
            return plain(number, handler)

        command.job_of, command.signal.signal = end, restore
        raise SystemExit(command.main(["--once"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
