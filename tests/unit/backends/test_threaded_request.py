"""Requests that a thread runs say when they have ended, well or not."""

import weakref

import pytest

from allhands.backends.threaded_request import ThreadedRequest


def test_a_request_ends():
    request = ThreadedRequest(lambda: None)
    assert (request.is_over(), request.Test()) == (False, False)
    request.run()
    assert (request.is_over(), request.Test()) == (True, True)


def test_a_failed_request_has_ended_and_says_why():
    def fail():
        raise RuntimeError("it broke")

    request = ThreadedRequest(fail)
    request.run()
    assert request.is_over()
    with pytest.raises(RuntimeError, match="it broke"):
        request.Test()


def test_a_request_that_runs_its_own_method_is_in_no_cycle():
    class OwnMethod(ThreadedRequest):
        def __init__(self):
            super().__init__(self._nothing)

        def _nothing(self):
            pass

    request = OwnMethod()
    request.run()
    seen = weakref.ref(request)
    del request
    assert seen() is None
