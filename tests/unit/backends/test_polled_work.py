"""Who asks for the end of an operation that nobody waits for."""

import threading

import pytest

from allhands.backends import polled_work


class Ended:
    """An operation that has ended, and says so when it is asked."""

    def __init__(self):
        self.is_asked = threading.Event()

    def advance(self):
        self.is_asked.set()
        return True


def test_where_no_thread_could_be_started_the_next_work_gets_one(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            polled_work._watch(Ended())
    work = Ended()
    polled_work._watch(work)
    assert work.is_asked.wait(60)
