"""Jobs that a command line names."""

import argparse

from allhands.debug import sources
from allhands.debug.job_record import JobRecord


def test_several_jobs_are_asked_at_once(monkeypatch):
    """As the nodes of a job are; each with a silent rank would take the whole time."""
    asked = []

    def ask(pids, limit):
        asked.append((sorted(pids), limit))
        return JobRecord((), {2: "does not answer"})

    monkeypatch.setattr(sources, "ask", ask)
    monkeypatch.setattr(sources, "ranks_of", {"a": [3, 4], "b": [4, 5]}.__getitem__)
    told = sources.gather(argparse.Namespace(records=["a", "b"], wait=3.0))
    assert asked == [([3, 4, 5], 3.0)]
    assert told == JobRecord([], {2: "does not answer"})
