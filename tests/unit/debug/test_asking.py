"""Which processes are the ranks of a job that somebody asks for."""

import json
import os
import subprocess

import pytest

import allhands as dist
from allhands.debug import asking
from allhands.debug.job_record import JobRecord
from allhands.debug.page import job_view
from allhands.debug.top.jobs import job_of
from allhands.elastic import records
from allhands.groups.world import World
from allhands.rendezvous.identity import Identity, process_identity


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


class Clock:
    """Whoever looks at it finds that a long time has passed since the last time."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def monotonic(self):
        self.now += 100.0
        return self.now


def test_who_has_answered_in_time_counts_however_slowly_it_is_read(monkeypatch):
    answered, told = set(), dist.debug.dump()

    def record_in(pid):
        return json.dumps(told) if pid in answered else ""

    clock = Clock()
    clock.sleep = clock.pauses.append
    monkeypatch.setattr(asking, "time", clock)
    monkeypatch.setattr(asking, "record_in", record_in)
    monkeypatch.setattr(asking, "_send", answered.add)
    assert sorted(asking._answers([1, 2, 3], 1.0)) == [1, 2, 3]
    monkeypatch.setattr(asking, "_send", lambda pid: None)
    answered.clear()
    assert asking._answers([1, 2, 3], 150.0) == {}
    assert len(clock.pauses) == 1


def test_ranks_that_share_a_cpu_have_longer_to_answer(monkeypatch):
    limits = []
    monkeypatch.setattr(records.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(job_view, "told_now", lambda *_: dist.debug.dump())
    monkeypatch.setattr(
        job_view,
        "ask_ranks",
        lambda ranks, limit: limits.append(limit) or JobRecord((), {}),
    )
    here, elsewhere = process_identity(), Identity("elsewhere", 1, 1)
    for size in (3, 61):
        ranks = {rank: here if rank < size else elsewhere for rank in range(99)}
        job_view.JobView(World(), 0, 99, ranks, "", 2.0).record()
    assert limits == [2.0, 6.0]
    with pytest.raises(ValueError, match=r"answers within 6 s: "):
        asking.ask(range(2**22 + 1, 2**22 + 61), 2.0)


@pytest.mark.parametrize("search", [asking.ranks_of, job_of])
def test_a_job_without_a_name_is_refused(monkeypatch, search):
    """Else all jobs would be it to whom nobody has given a run id."""
    monkeypatch.setattr(asking, "answers", lambda pid: True)
    with pytest.raises(ValueError, match="name is empty; want a process id"):
        search("")
