"""FollowedWork: what follows an operation runs once, and only after a good end."""

import threading
from datetime import timedelta

import pytest

from allhands.backends.followed import FollowedWork
from allhands.backends.work import Work
from allhands.errors import CollectiveTimeoutError
from harness.ranks import LIMIT


class Manual(Work):
    """Ends when `end` is called."""

    def __init__(self):
        super().__init__()
        self.error = None
        self.is_ended = False
        self.callbacks = []

    def end(self, error=None):
        self.error, self.is_ended = error, True
        for callback in self.callbacks:
            callback()

    def wait_for(self, timeout):
        if self.error:
            raise self.error

    def is_completed(self):
        return self.is_ended

    def exception(self):
        return self.error

    def add_done_callback(self, callback):
        self.callbacks.append(callback)


def test_follows_when_the_operation_ends():
    seen = []
    manual = Manual()
    work = FollowedWork(manual, lambda: seen.append("follow"), ["output"])
    work.add_done_callback(lambda: seen.append("callback"))
    assert not work.is_completed()
    assert not seen
    manual.end()
    assert seen == ["follow", "callback"]
    assert work.is_success()
    assert work.wait()
    assert work.result() == ["output"]
    assert seen == ["follow", "callback"]


def test_nothing_follows_a_failure():
    manual = Manual()
    work = FollowedWork(manual, lambda: pytest.fail("it ran"), [])
    manual.end(ValueError("lost"))
    assert work.is_completed()
    assert isinstance(work.exception(), ValueError)
    with pytest.raises(ValueError, match="lost"):
        work.wait()


def test_unless_that_is_asked_for():
    seen = []
    manual = Manual()
    work = FollowedWork(manual, lambda: seen.append("follow"), [], after_failure=True)
    manual.end(ValueError("lost"))
    assert seen == ["follow"]
    with pytest.raises(ValueError, match="lost"):
        work.wait()
    assert isinstance(work.exception(), ValueError)
    assert seen == ["follow"]


def test_failure_of_what_follows_is_that_of_the_work():
    def follow():
        raise MemoryError("no room")

    manual = Manual()
    work = FollowedWork(manual, follow, [])
    manual.end()
    assert not work.is_success()
    assert isinstance(work.exception(), MemoryError)
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            work.wait()


def test_what_is_interrupted_is_done_by_the_next_wait():
    seen = []

    def follow():
        seen.append(len(seen))
        if len(seen) == 1:
            raise KeyboardInterrupt

    manual = Manual()
    work = FollowedWork(manual, follow, [])
    with pytest.raises(KeyboardInterrupt):
        manual.end()
    assert work.wait()
    assert work.is_completed()
    assert seen == [0, 1]


def test_what_is_interrupted_is_done_when_somebody_asks():
    interrupts = [KeyboardInterrupt]
    seen = []

    def follow():
        if interrupts:
            raise interrupts.pop()

    manual = Manual()
    work = FollowedWork(manual, follow, [])
    work.add_done_callback(lambda: seen.append("told"))
    with pytest.raises(KeyboardInterrupt):
        manual.end()
    assert not seen
    assert work.is_completed()
    assert seen == ["told"]


def test_a_handler_within_what_follows_is_not_held_up():
    """As a signal's, or a finalizer's, which may use any object."""
    seen = []

    def handle():
        seen.append(work.is_completed())
        work.add_done_callback(lambda: seen.append(work.wait()))
        for limit in (timedelta(0), timedelta(seconds=LIMIT)):
            with pytest.raises(RuntimeError, match="this thread is just writing"):
                work.wait(limit)

    manual = Manual()
    work = FollowedWork(manual, handle, [])
    thread = threading.Thread(target=manual.end, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert seen == [False, True]
    assert work.is_success()


def test_the_limit_of_a_wait_is_kept_while_another_thread_follows():
    is_following, may_end = threading.Event(), threading.Event()

    def follow():
        is_following.set()
        assert may_end.wait(LIMIT)

    manual = Manual()
    work = FollowedWork(manual, follow, [])
    thread = threading.Thread(target=manual.end, daemon=True)
    thread.start()
    assert is_following.wait(LIMIT)
    try:
        with pytest.raises(CollectiveTimeoutError, match=r"still writing .* 0\.05 s"):
            work.wait(timedelta(seconds=0.05))
        assert not work.is_completed()
    finally:
        may_end.set()
    assert work.wait(timedelta(seconds=LIMIT))
    thread.join(LIMIT)
    assert work.is_success()
