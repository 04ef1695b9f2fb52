import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from allhands.elastic.records import Records


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "attempt_0"
    path.mkdir()
    return path


def asked(folder, pid):
    """The signals that are sent to a rank which has once said that it answers."""
    (folder / f".answers_{pid}").touch()
    sent = []
    rank = SimpleNamespace(pid=pid, rank=0, send=lambda n, to_group: sent.append(n))
    Records(str(folder), "unused").ask([rank])
    return sent


def test_a_rank_that_answers_is_asked(folder):
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert asked(folder, os.getpid()) == [signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_a_rank_that_has_become_another_program_is_not_asked(folder):
    with subprocess.Popen(["sleep", "999"]) as process:
        try:
            assert asked(folder, process.pid) == []
        finally:
            process.kill()


def test_a_rank_that_is_gone_is_not_asked(folder):
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert asked(folder, process.pid) == []
