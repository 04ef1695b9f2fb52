"""What is seen from outside of a process that does not answer."""

import json
import os
import time

import pytest

from allhands.debug import allowance, silent
from allhands.debug.allowance import Allowance

FRAMES = [
    {"name": "wait", "filename": threading_file, "line": 3}
    for threading_file in (os.__file__,)
] + [
    {"name": "train", "filename": "/home/me/train.py", "line": 31},
    {"name": "<module>", "filename": "/home/me/train.py", "line": 40},
]


def told(pid, frames=FRAMES):
    other = {"os_thread_id": pid + 1, "frames": []}
    return json.dumps([other, {"os_thread_id": pid, "frames": frames}])


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """What is seen where py-spy is this shell script."""

    monkeypatch.setattr(silent, "open_memory", lambda pid: None)  # of other tests

    def see(script, limit=30.0):
        program = tmp_path / "py-spy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(silent, "_py_spy", lambda: str(program))
        return silent.seen_of(os.getpid(), Allowance(limit))

    return see


def test_the_line_is_the_program_s_own(seen):
    assert seen(f"echo '{told(os.getpid())}'") == " (/home/me/train.py:31)"


@pytest.mark.parametrize(
    "output",
    [
        "",
        "{",
        "[1]",
        '{"os_thread_id": 1}',
        "[]",
    ],
)
def test_other_output_gives_no_line(seen, output):
    assert seen(f"echo '{output}'") == ""


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [{"name": "f", "filename": "f.py"}],
        [{"name": "f", "filename": "f.py", "line": "1"}],
        7,
    ],
)
def test_frames_of_another_form_give_no_line(seen, frames):
    assert seen(f"echo '{told(os.getpid(), frames)}'") == ""


def test_a_refusal_gives_no_line(seen):
    assert seen(f"echo '{told(os.getpid())}'; exit 1") == ""


def test_it_is_not_waited_for_beyond_the_limit(seen):
    begin = time.monotonic()
    assert seen("exec sleep 60", limit=0.2) == ""
    assert time.monotonic() - begin < 30


def test_time_without_a_cpu_does_not_count(seen, monkeypatch):
    begin = time.monotonic()
    monkeypatch.setattr(
        allowance, "seconds_without_cpu", lambda pid=None: time.monotonic() - begin
    )
    script = f"sleep 0.6; echo '{told(os.getpid())}'"
    monkeypatch.setattr(allowance, "_MOST_WITHOUT_CPU", 30.0)
    assert seen(script, limit=0.2) == " (/home/me/train.py:31)"
    monkeypatch.setattr(allowance, "_MOST_WITHOUT_CPU", 0.1)
    assert seen(script, limit=0.2) == ""


def test_only_the_ranks_with_a_process_are_looked_at(monkeypatch):
    monkeypatch.setattr(silent, "seen_of", lambda pid, allowance: f", seen {pid}")
    found = silent.with_seen({1: "stopped", 2: "elsewhere"}, {1: 77}, 1.0)
    assert found == {1: "stopped, seen 77", 2: "elsewhere"}
