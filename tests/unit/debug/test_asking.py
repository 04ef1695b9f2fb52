"""Which processes are the ranks of a job that somebody asks for."""

import os
import subprocess

import pytest

from allhands.debug import asking


def sleeper(run_id):
    return subprocess.Popen(
        ["sleep", "999"], env={**os.environ, "TORCHELASTIC_RUN_ID": run_id}
    )


def test_digits_are_a_run_id_before_they_are_a_process_id(monkeypatch):
    with sleeper("none") as other:
        asked_for = str(other.pid)
        with sleeper(asked_for) as rank:
            try:
                monkeypatch.setattr(
                    asking, "answers", {rank.pid, other.pid}.__contains__
                )
                assert asking.ranks_of(asked_for) == [rank.pid]
                rank.kill()
                rank.wait()
                assert other.pid in asking.ranks_of(asked_for)
            finally:
                rank.kill()
                other.kill()


def test_a_number_that_is_neither_is_said_to_be_neither():
    with pytest.raises(ValueError, match=r"'999999999' is .*no run id .*no process 99"):
        asking.ranks_of("999999999")
