"""A rank writes its record amid its program, and leaves that as it was."""

import os
import subprocess
import sys

import pytest

from allhands.debug.job_record import read_job
from harness.launcher import environment, program

PROLOGUE = """
import gc, json, os, signal, threading, weakref
import numpy as np
import allhands as dist
from allhands.backends import failures

folder = os.environ["ALLHANDS_DUMPS"]
path = os.path.join(folder, "rank_0.json")
gc.disable()

def asked():
    signal.raise_signal(signal.SIGUSR2)

class Array:
    pass
"""

CASES = {
    "a signal between a write and its end": """
real, calls = os.replace, []

def replace(*names):
    calls.append(names)
    if len(calls) == 1:
        asked()
    real(*names)

os.replace = replace
dist.debug.dump(path)
os.replace = real
assert len(calls) == 2
""",
    "two threads that write to one path": """
real, both = os.replace, threading.Barrier(2)

def replace(*names):
    both.wait(100)
    real(*names)

os.replace = replace
failed = []
threading.excepthook = failed.append
threads = [threading.Thread(target=dist.debug.dump, args=(path,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
""",
    "a signal where no record can be made": """
asked()
os.environ["RANK"] = "odd"
asked()
""",
    "a signal does not keep what frames have": """
def work():
    array = Array()
    asked()
    dist.debug.dump()
    return weakref.ref(array)

assert work()() is None
""",
    "a failure does not keep what frames have": """
def fail():
    array = Array()
    try:
        raise dist.CollectiveTimeoutError("all_reduce #1: timed out")
    except dist.DistError as error:
        failures.tell(error)
        failures.tell(error)  # of one told already
    return weakref.ref(array)

assert fail()() is None
""",
    "a signal just after a failure keeps that, and is answered": """
failures.tell(dist.CollectiveTimeoutError("all_reduce #1: timed out"))
os.utime(path, (1, 1))
asked()
assert os.stat(path).st_mtime > 1
assert json.load(open(path))["reason"] == "failure"
os.remove(path)
asked()
assert json.load(open(path))["reason"] == "signal"
""",
}


@pytest.mark.parametrize("case", CASES)
def test_a_record_is_whole_and_the_program_goes_on(tmp_path, case):
    records = tmp_path / "records"
    records.mkdir()
    done = subprocess.run(
        [sys.executable, program(tmp_path, PROLOGUE + CASES[case])],
        env=environment(RANK="0", WORLD_SIZE="1", ALLHANDS_DUMPS=str(records)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [dump.rank for dump in read_job([records]).dumps] == [0]
    assert os.listdir(records) == ["rank_0.json"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    text = """
        import allhands as dist
        dist.init_process_group()
        raise ValueError("bad batch")
    """
    done = subprocess.run(
        [sys.executable, program(tmp_path, text)],
        env=environment(ALLHANDS_DUMPS="/dev/null/records"),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 1
    assert [
        line for line in done.stderr.splitlines() if line.startswith("allhands: ")
    ] == [
        "allhands: [rank0] records: rank 0 has no record: ALLHANDS_DUMPS: "
        "/dev/null/records: Not a directory"
    ]
    assert done.stderr.splitlines()[-1].endswith("ValueError: bad batch")


def test_a_handler_that_is_not_pythons_stays(tmp_path):
    text = """
        import faulthandler, signal
        faulthandler.register(signal.SIGUSR2)
        import allhands as dist
        dist.init_process_group()
        signal.raise_signal(signal.SIGUSR2)
    """
    done = subprocess.run(
        [sys.executable, program(tmp_path, text)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0
    assert "most recent call first" in done.stderr


def test_who_is_asked_while_python_ends_lives_on(tmp_path):
    """Python has taken its handlers back when it clears what modules hold."""
    text = """
        import os, signal
        import allhands as dist

        class Asker:
            ask, pid, number = os.kill, os.getpid(), signal.SIGUSR2

            def __del__(self):
                print("asks", flush=True)
                self.ask(self.pid, self.number)
                print("is asked", flush=True)

        asker = Asker()
        dist.init_process_group()
    """
    done = subprocess.run(
        [sys.executable, program(tmp_path, text)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stdout) == (0, "asks\nis asked\n")
